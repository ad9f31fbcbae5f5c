#include "io/base/unpickler.h"

namespace melete {

PickleValue* Unpickler::name(const std::string& module, const std::string& attribute) {
  const std::string full = module + "." + attribute;
  bool known = is_known_name(full);
  for (const std::string& pattern : options_.inert) known = known || name_matches(pattern, full);
  // Attributes of attributes ("a.b" in protocol 4) could reach anything through a harmless class.
  known = known && attribute.find('.') == std::string::npos;
  require(known,
          "[{}] refused: its pickle wants to use `{}`, which is not on the list of harmless names; nothing "
          "was run. A checkpoint does not need it: load this file nowhere before you know why it is there",
          where_, printable(full));
  return make(Kind::name, full);
}

const std::string& Unpickler::name_of(const PickleValue* value) {
  if (value->kind != Kind::name) bad("it calls a {}", value->kind_name());
  return *value->text();
}

const PickleValue* Unpickler::argument(const Items& list, size_t index, std::string_view of) {
  if (index >= list.size()) bad("{} has {} arguments, expected more", of, list.size());
  return list[index];
}

int64_t Unpickler::whole(const PickleValue* value, std::string_view of) {
  const auto result = value->integer();
  if (!result) bad("{} got a {} where a whole number belongs", of, value->kind_name());
  return *result;
}

std::vector<int64_t> Unpickler::wholes(const PickleValue* value, std::string_view of) {
  const Items* list = value->items();
  if (!list || value->kind == Kind::object) bad("{} got a {} for a shape", of, value->kind_name());
  std::vector<int64_t> result;
  for (const PickleValue* item : *list) result.push_back(whole(item, of));
  if (result.size() > 64) bad("{} got {} dimensions", of, result.size());
  return result;
}

PickleValue* Unpickler::call(const PickleValue* function, const PickleValue* arguments) {
  const std::string& what = name_of(function);
  const Items* list = arguments->items();
  if (!list || arguments->kind != Kind::tuple) bad("{} got arguments that are no tuple", what);
  if (what.starts_with("torch._utils._rebuild_tensor")) return tensor(what, *list);
  if (what.starts_with("torch._utils._rebuild_parameter"))
    return const_cast<PickleValue*>(argument(*list, 0, what));
  if (what == "torch._tensor._rebuild_from_type_v2") {
    if (name_of(argument(*list, 0, what)) == what) bad("{} of itself", what);
    return call(argument(*list, 0, what), argument(*list, 2, what));
  }
  if (what == "torch.Size") return items(Kind::tuple, list->empty() ? Items{} : copy(list->at(0)));
  if (what == "_codecs.encode") return encoded(*list);
  if (what == "copyreg._reconstructor" || what == "copy_reg._reconstructor")
    return instance(argument(*list, 0, what), arguments);
  if (what.ends_with("._reconstruct") || what.ends_with("multiarray.scalar") ||
      what.ends_with("._frombuffer"))
    return numpy(what, arguments);
  return instance(function, arguments);
}

Unpickler::Items Unpickler::copy(const PickleValue* value) {
  const Items* list = value->items();
  if (!list || value->kind == Kind::object) bad("a {} where a list belongs", value->kind_name());
  spend(list->size());
  return *list;
}

// A class becomes the plain value that it is like, or an object that is only data.
PickleValue* Unpickler::instance(const PickleValue* type, const PickleValue* arguments) {
  const std::string& what = name_of(type);
  const std::string_view builtin = without_builtins(what);
  const Items* list = arguments ? arguments->items() : nullptr;
  const PickleValue* first = list && !list->empty() ? list->front() : nullptr;
  if (what == "collections.OrderedDict" || what == "collections.defaultdict" ||
      what == "collections.Counter" || builtin == "dict") {
    PickleValue* made = make(Kind::dict, PickleDict{});
    made->ordered = what == "collections.OrderedDict";
    if (first && first->items() && first->kind != Kind::object)
      for (const PickleValue* pair : copy(first)) {
        if (!pair->items() || pair->items()->size() != 2) bad("{} got an entry that is no pair", what);
        dict_of(made).entries.emplace_back(pair->items()->at(0), pair->items()->at(1));
      }
    else if (first && first->kind == Kind::dict) {
      spend(first->dict()->entries.size());
      dict_of(made).entries = first->dict()->entries;
    }
    return made;
  }
  if (builtin == "list" || builtin == "set" || builtin == "frozenset" || builtin == "tuple" ||
      what == "collections.deque") {
    const Kind kind = builtin == "tuple"                     ? Kind::tuple
                      : builtin == "list" || builtin.empty() ? Kind::list
                                                             : Kind::set;
    return items(kind, first ? copy(first) : Items{});
  }
  if (builtin == "bytearray" || builtin == "bytes") {
    if (first && !first->is(Kind::bytes) && !first->is(Kind::text)) bad("{} got no bytes", what);
    if (first) spend(first->text()->size());
    return make(Kind::bytes, first ? *first->text() : std::string());
  }
  return object(what, arguments);
}

// bytes in protocol 2: their characters as text, to be encoded as Latin-1.
PickleValue* Unpickler::encoded(const Items& list) {
  const PickleValue* from = argument(list, 0, "_codecs.encode");
  if (!from->is(Kind::text)) bad("_codecs.encode got a {}", from->kind_name());
  spend(from->text()->size());
  std::string result;
  const std::string& utf8 = *from->text();
  for (size_t i = 0; i < utf8.size(); ++i) {
    const auto c = static_cast<unsigned char>(utf8[i]);
    if (c < 0x80) {
      result += utf8[i];
    } else {
      if (c > 0xc3 || c < 0xc2 || i + 1 >= utf8.size()) bad("bytes with a character beyond 255");
      result += static_cast<char>((c << 6) | (static_cast<unsigned char>(utf8[++i]) & 0x3f));
    }
  }
  return make(Kind::bytes, std::move(result));
}

// Copies made at a pickle's word count against its size, so that repeating them cannot fill the memory.
void Unpickler::spend(uint64_t amount) {
  spent_ += amount;
  if (spent_ > 4 * bytes_.size() + 4096) bad("it copies its values over and over");
}

}  // namespace melete
