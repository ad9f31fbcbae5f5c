#include "io/base/unpickler.h"

namespace melete {

namespace {

std::string unquoted(const std::string& repr) {
  return repr.size() >= 2 && (repr[0] == '\'' || repr[0] == '"') ? repr.substr(1, repr.size() - 2) : repr;
}

void append_utf8(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += {static_cast<char>(0xc0 | (c >> 6)), static_cast<char>(0x80 | (c & 0x3f))};
  } else {
    out += {static_cast<char>(0xe0 | ((c >> 12) & 0x0f)), static_cast<char>(0x80 | ((c >> 6) & 0x3f)),
            static_cast<char>(0x80 | (c & 0x3f))};
  }
}

// Protocol 0: Latin-1, and \\uXXXX for what is beyond it.
std::string raw_unicode(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string digits = text.substr(i, 2) == "\\u" ? text.substr(i + 2, 4) : "";
    if (digits.size() == 4 && digits.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos) {
      append_utf8(result, static_cast<uint32_t>(std::stoul(digits, nullptr, 16)));
      i += 5;
    } else {
      append_utf8(result, static_cast<unsigned char>(text[i]));
    }
  }
  return result;
}

}  // namespace

bool Unpickler::step() {
  const auto op = static_cast<unsigned char>(*take(1));
  switch (op) {
    case '.':
      tree_.root_ = pop();
      return false;
    case 0x80:
      number<uint8_t>();
      break;  // protocol
    case 0x95:
      number<uint64_t>();
      break;  // frame: a hint for buffering
    case '(':
      marks_.push_back(stack_.size());
      break;
    case '0':
      if (stack_.size() > floor())
        pop();
      else
        pop_mark();
      break;
    case '1':
      pop_mark();
      break;
    case '2':
      push(top());
      break;

    case 'N':
      push(none());
      break;
    case 0x88:
      push(boolean(true));
      break;
    case 0x89:
      push(boolean(false));
      break;
    case 'I': {
      const std::string digits = line();
      push(digits == "01" ? boolean(true) : digits == "00" ? boolean(false) : decimal(digits));
      break;
    }
    case 'L':
      push(decimal(line()));
      break;
    case 'J':
      push(integer(number<int32_t>()));
      break;
    case 'K':
      push(integer(number<uint8_t>()));
      break;
    case 'M':
      push(integer(number<uint16_t>()));
      break;
    case 0x8a:
      push(long_integer(number<uint8_t>()));
      break;
    case 0x8b:
      push(long_integer(static_cast<uint64_t>(std::max(0, number<int32_t>()))));
      break;
    case 'F': {
      const std::string digits = line();
      char* end = nullptr;
      const double value = std::strtod(digits.c_str(), &end);
      if (digits.empty() || *end != 0) bad("'{}' is not a number", printable(digits));
      push(make(Kind::real, value));
      break;
    }
    case 'G': {
      const uint64_t bits = __builtin_bswap64(number<uint64_t>());
      double value;
      std::memcpy(&value, &bits, 8);
      push(make(Kind::real, value));
      break;
    }
    case 'S':
      push(make(Kind::text, unquoted(line())));
      break;
    case 'V':
      push(make(Kind::text, raw_unicode(line())));
      break;
    case 'T':
      push(make(Kind::text, text(number<uint32_t>())));
      break;
    case 'U':
      push(make(Kind::text, text(number<uint8_t>())));
      break;
    case 'X':
      push(make(Kind::text, text(number<uint32_t>())));
      break;
    case 0x8c:
      push(make(Kind::text, text(number<uint8_t>())));
      break;
    case 0x8d:
      push(make(Kind::text, text(number<uint64_t>())));
      break;
    case 'B':
      push(make(Kind::bytes, text(number<uint32_t>())));
      break;
    case 'C':
      push(make(Kind::bytes, text(number<uint8_t>())));
      break;
    case 0x8e:
    case 0x96:
      push(make(Kind::bytes, text(number<uint64_t>())));
      break;
    case 0x98:
      top();
      break;  // a buffer becomes read-only

    case ']':
      push(items(Kind::list, {}));
      break;
    case 'l': {
      const auto values = pop_mark();
      push(items(Kind::list, as_items(values)));
      break;
    }
    case ')':
      push(items(Kind::tuple, {}));
      break;
    case 't': {
      const auto values = pop_mark();
      push(items(Kind::tuple, as_items(values)));
      break;
    }
    case 0x85:
      push(tuple(1));
      break;
    case 0x86:
      push(tuple(2));
      break;
    case 0x87:
      push(tuple(3));
      break;
    case 0x8f:
      push(items(Kind::set, {}));
      break;
    case 0x91: {
      const auto values = pop_mark();
      push(items(Kind::set, as_items(values)));
      break;
    }
    case '}':
      push(make(Kind::dict, PickleDict{}));
      break;
    case 'd': {
      const auto pairs = pop_mark();
      push(make(Kind::dict, PickleDict{}));
      add_pairs(top(), pairs);
      break;
    }
    case 'a': {
      PickleValue* value = pop();
      list_of(top()).push_back(value);
      break;
    }
    case 'e':
    case 0x90: {
      const auto values = pop_mark();
      Items& target = list_of(top());
      target.insert(target.end(), values.begin(), values.end());
      break;
    }
    case 's': {
      PickleValue* value = pop();
      PickleValue* key = pop();
      add_pairs(top(), {key, value});
      break;
    }
    case 'u': {
      const auto pairs = pop_mark();
      add_pairs(top(), pairs);
      break;
    }

    case 'p':
      put(memo_key(line()));
      break;
    case 'q':
      put(number<uint8_t>());
      break;
    case 'r':
      put(number<uint32_t>());
      break;
    case 0x94:
      put(memo_.size());
      break;
    case 'g':
      get(memo_key(line()));
      break;
    case 'h':
      get(number<uint8_t>());
      break;
    case 'j':
      get(number<uint32_t>());
      break;

    case 'c': {
      const std::string module = line();
      push(name(module, line()));
      break;
    }
    case 0x93: {
      const PickleValue* attribute = pop();
      const PickleValue* module = pop();
      if (!attribute->is(Kind::text) || !module->is(Kind::text)) bad("a name that is no text");
      push(name(*module->text(), *attribute->text()));
      break;
    }
    case 'R': {
      const PickleValue* arguments = pop();
      push(call(pop(), arguments));
      break;
    }
    case 0x81: {
      const PickleValue* arguments = pop();
      push(made_new(pop(), arguments));
      break;
    }
    case 0x92: {
      pop();
      const PickleValue* arguments = pop();
      push(made_new(pop(), arguments));
      break;
    }
    case 'i': {
      const std::string module = line();
      PickleValue* type = name(module, line());
      const auto values = pop_mark();
      push(instance(type, items(Kind::tuple, as_items(values))));
      break;
    }
    case 'o': {
      auto values = pop_mark();
      if (values.empty()) bad("an object without a class");
      const PickleValue* type = values.front();
      values.erase(values.begin());
      push(instance(type, items(Kind::tuple, as_items(values))));
      break;
    }
    case 'b': {
      const PickleValue* state = pop();
      build(top(), state);
      break;
    }
    case 'P':
      bad("it refers to values outside of itself by name");
    case 'Q': {
      const PickleValue* id = pop();
      push(storage(id));
      break;
    }
    default:
      bad("opcode 0x{:02x} is not one of pickle's, or one that no checkpoint needs", op);
  }
  return true;
}

PickleValue* Unpickler::made_new(const PickleValue* type, const PickleValue* arguments) {
  if (!arguments->is(Kind::tuple)) bad("an object's arguments are no tuple");
  return instance(type, arguments);
}

uint64_t Unpickler::memo_key(const std::string& digits) {
  const auto value = decimal(digits)->integer();
  if (!value || *value < 0) bad("a memo number '{}'", printable(digits));
  return static_cast<uint64_t>(*value);
}

PickleTree unpickle(std::span<const std::byte> bytes, const std::string& where,
                    const UnpickleOptions& options) {
  return Unpickler(bytes, where, options).run();
}

}  // namespace melete
