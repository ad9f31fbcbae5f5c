#include "io/base/pickle.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <unordered_map>

#include "core/base/error.h"
#include "io/base/mapped_file.h"
#include "io/base/pickle_names.h"

namespace melete {

namespace {

using Kind = PickleValue::Kind;
using Items = PickleValue::Items;

}  // namespace

class Unpickler {
 public:
  Unpickler(std::span<const std::byte> bytes, const std::string& where, const UnpickleOptions& options)
      : bytes_(bytes), where_(where), options_(options) {}

  PickleTree run() {
    while (step()) {
    }
    check_pickle_graph(tree_.values_, tree_.root_, bytes_.size(), where_);
    tree_.consumed_ = at_;
    return std::move(tree_);
  }

 private:
  template <class... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    fail("[{}] damaged pickle at byte {}: {}", where_, at_, fmt::format(format, std::forward<Args>(args)...));
  }

  // --- input

  const std::byte* take(uint64_t count) {
    if (count > bytes_.size() - at_) bad("{} bytes wanted, {} left", count, bytes_.size() - at_);
    const std::byte* result = bytes_.data() + at_;
    at_ += count;
    return result;
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)), sizeof(T));
    return value;
  }
  std::string text(uint64_t count) { return {reinterpret_cast<const char*>(take(count)), count}; }
  std::string line() {
    const auto rest = bytes_.subspan(at_);
    const auto end = std::find(rest.begin(), rest.end(), std::byte{'\n'});
    if (end == rest.end()) bad("a line does not end");
    const auto count = static_cast<uint64_t>(end - rest.begin());
    std::string result = text(count);
    ++at_;
    return result;
  }

  // --- values

  PickleValue* make(Kind kind) {
    PickleValue& value = tree_.values_.emplace_back();
    value.kind = kind;
    return &value;
  }
  template <class T>
  PickleValue* make(Kind kind, T data) {
    PickleValue* value = make(kind);
    value->data = std::move(data);
    return value;
  }
  PickleValue* none() { return none_ ? none_ : none_ = make(Kind::none); }
  PickleValue* boolean(bool on) {
    PickleValue*& one = on ? true_ : false_;
    return one ? one : one = make(Kind::boolean, on);
  }
  PickleValue* integer(int64_t value) { return make(Kind::integer, value); }
  PickleValue* items(Kind kind, Items list) { return make(kind, std::move(list)); }
  PickleValue* object(std::string name, const PickleValue* arguments) {
    auto held = std::make_unique<PickleObject>();
    held->name = std::move(name);
    held->arguments = arguments;
    return make(Kind::object, std::move(held));
  }

  void push(PickleValue* value) { stack_.push_back(value); }
  PickleValue* pop() {
    if (stack_.size() <= floor()) bad("its stack is empty");
    PickleValue* value = stack_.back();
    stack_.pop_back();
    return value;
  }
  PickleValue* top() {
    if (stack_.size() <= floor()) bad("its stack is empty");
    return stack_.back();
  }
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  std::vector<PickleValue*> pop_mark() {
    if (marks_.empty()) bad("a mark is missing");
    std::vector<PickleValue*> result(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()),
                                     stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return result;
  }
  static Items as_items(const std::vector<PickleValue*>& values) { return {values.begin(), values.end()}; }
  PickleValue* tuple(size_t count) {
    Items list(count);
    for (size_t i = count; i-- > 0;) list[i] = pop();
    return items(Kind::tuple, std::move(list));
  }

  void put(uint64_t key) { memo_[key] = top(); }
  void get(uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) bad("it refers to value {}, which it never stored", key);
    push(found->second);
  }

  Items& list_of(PickleValue* value) {
    if (value->kind == Kind::object) return std::get<std::unique_ptr<PickleObject>>(value->data)->elements;
    if (value->kind != Kind::list && value->kind != Kind::set) bad("it appends to a {}", value->kind_name());
    return std::get<Items>(value->data);
  }
  PickleDict& dict_of(PickleValue* value) {
    if (value->kind == Kind::object) return std::get<std::unique_ptr<PickleObject>>(value->data)->items;
    if (value->kind != Kind::dict) bad("it sets an item of a {}", value->kind_name());
    return std::get<PickleDict>(value->data);
  }
  void add_pairs(PickleValue* target, const std::vector<PickleValue*>& pairs) {
    if (pairs.size() % 2 != 0) bad("a key has no value");
    PickleDict& dict = dict_of(target);
    for (size_t i = 0; i < pairs.size(); i += 2) dict.entries.emplace_back(pairs[i], pairs[i + 1]);
  }

  // Little-endian two's complement of any length.
  PickleValue* long_integer(uint64_t count) {
    const std::byte* data = take(count);
    if (count == 0) return integer(0);
    if (count <= 8) {
      uint64_t value = (data[count - 1] & std::byte{0x80}) != std::byte{0} ? ~uint64_t{0} : 0;
      for (uint64_t i = count; i-- > 0;) value = (value << 8) | static_cast<uint64_t>(data[i]);
      return integer(static_cast<int64_t>(value));
    }
    std::string hex = "0x";
    for (uint64_t i = count; i-- > 0;) hex += fmt::format("{:02x}", static_cast<unsigned>(data[i]));
    return make(Kind::integer, std::move(hex));
  }
  PickleValue* decimal(std::string digits) {
    if (digits.ends_with('L')) digits.pop_back();
    errno = 0;
    char* end = nullptr;
    const long long value = std::strtoll(digits.c_str(), &end, 10);
    if (digits.empty() || *end != 0) bad("'{}' is not a number", printable(digits));
    return errno == ERANGE ? make(Kind::integer, std::move(digits)) : integer(value);
  }

  // --- names

  PickleValue* name(const std::string& module, const std::string& attribute) {
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
  const std::string& name_of(const PickleValue* value) {
    if (value->kind != Kind::name) bad("it calls a {}", value->kind_name());
    return *value->text();
  }

  const PickleValue* argument(const Items& list, size_t index, std::string_view of) {
    if (index >= list.size()) bad("{} has {} arguments, expected more", of, list.size());
    return list[index];
  }
  int64_t whole(const PickleValue* value, std::string_view of) {
    const auto result = value->integer();
    if (!result) bad("{} got a {} where a whole number belongs", of, value->kind_name());
    return *result;
  }
  std::vector<int64_t> wholes(const PickleValue* value, std::string_view of) {
    const Items* list = value->items();
    if (!list || value->kind == Kind::object) bad("{} got a {} for a shape", of, value->kind_name());
    std::vector<int64_t> result;
    for (const PickleValue* item : *list) result.push_back(whole(item, of));
    if (result.size() > 64) bad("{} got {} dimensions", of, result.size());
    return result;
  }

  PickleValue* call(const PickleValue* function, const PickleValue* arguments) {
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

  Items copy(const PickleValue* value) {
    const Items* list = value->items();
    if (!list || value->kind == Kind::object) bad("a {} where a list belongs", value->kind_name());
    spend(list->size());
    return *list;
  }

  // A class becomes the plain value that it is like, or an object that is only data.
  PickleValue* instance(const PickleValue* type, const PickleValue* arguments) {
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
  PickleValue* encoded(const Items& list) {
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
  void spend(uint64_t amount) {
    spent_ += amount;
    if (spent_ > 4 * bytes_.size() + 4096) bad("it copies its values over and over");
  }

  // --- torch

  PickleValue* storage(const PickleValue* id) {
    if (!options_.torch_storages) bad("it refers to values outside of itself");
    const Items* list = id->items();
    if (id->kind != Kind::tuple || list->size() < 5) bad("a storage without its five fields");
    const std::string* tag = (*list)[0]->text();
    const std::string* key = (*list)[2]->text();
    if (!tag || *tag != "storage" || !key) bad("a persistent name that is no storage");
    const std::string& type = name_of((*list)[1]);
    const PickleElement* element = torch_storage(type);
    if (!element) element = torch_dtype(type);
    if (!element) bad("a storage of type {}", printable(type));
    if (list->size() > 5 && !(*list)[5]->is_none()) bad("a storage that is a view of another one");
    const int64_t elements = whole((*list)[4], "a storage");
    if (elements < 0) bad("a storage of {} elements", elements);
    const auto [place, added] = storage_index_.try_emplace(*key, tree_.storages_.size());
    if (added)
      tree_.storages_.push_back({*key, std::string(element->name), element->bytes, elements, {}});
    else if (tree_.storages_[place->second].element_bytes != element->bytes ||
             tree_.storages_[place->second].elements != elements)
      bad("storage '{}' is described in two ways", printable(*key));
    // A name with its number: only _rebuild_tensor takes it.
    PickleValue* made = make(Kind::object, std::make_unique<PickleObject>());
    std::get<std::unique_ptr<PickleObject>>(made->data)->name = "torch.storage";
    storages_by_value_[made] = {place->second, element};
    return made;
  }

  PickleValue* tensor(const std::string& what, const Items& list) {
    const auto found = storages_by_value_.find(argument(list, 0, what));
    if (found == storages_by_value_.end()) bad("{} got no storage", what);
    const PickleElement* element = found->second.second;
    if (what.ends_with("_v3")) {
      element = torch_dtype(name_of(argument(list, 6, what)));
      if (!element) bad("{} got an unknown element type", what);
    }
    auto made = std::make_unique<PickleTensor>();
    made->dtype = element->dtype;
    made->element = element->name;
    made->element_bytes = element->bytes;
    made->storage = found->second.first;
    made->storage_offset = whole(argument(list, 1, what), what);
    made->shape = wholes(argument(list, 2, what), what);
    made->strides = wholes(argument(list, 3, what), what);
    if (made->shape.size() != made->strides.size())
      bad("{} sizes but {} strides", made->shape.size(), made->strides.size());
    spend(made->shape.size() + made->strides.size());
    tree_.tensors_.push_back(made.get());
    return make(Kind::tensor, std::move(made));
  }

  // --- numpy

  // `state`: what numpy.dtype was called with and built from: ("f8", ...) and (3, "<", ...).
  void set_element(PickleTensor& tensor, const PickleValue* dtype) {
    const PickleObject* held = dtype ? dtype->object() : nullptr;
    if (!held || held->name != "numpy.dtype" || !held->arguments || held->arguments->items()->empty())
      bad("an array whose type is no numpy.dtype");
    const std::string* code = held->arguments->items()->front()->text();
    if (!code) bad("an array whose type has no name");
    std::string_view kind = *code;
    char order = '<';
    if (!kind.empty() && std::string_view("<>|=").find(kind[0]) != std::string_view::npos) {
      order = kind[0];
      kind.remove_prefix(1);
    } else if (held->state && held->state->items() && held->state->items()->size() > 1) {
      const std::string* written = held->state->items()->at(1)->text();
      if (written && !written->empty()) order = (*written)[0];
    }
    const PickleElement* element = numpy_element(kind);
    tensor.element_bytes = 0;
    tensor.element = element ? std::string(element->name) : printable(*code, 20);
    if (!element) return;  // text, dates, objects: kept without their values
    if (order == '>' && element->bytes > 1)
      tensor.element = "big-endian " + tensor.element;
    else
      tensor.dtype = element->dtype;
    tensor.element_bytes = element->bytes;
  }

  void set_array(PickleTensor& tensor, std::vector<int64_t> shape, bool fortran,
                 std::span<const std::byte> bytes) {
    uint64_t count = 1;
    for (const int64_t size : shape)
      if (size < 0 || __builtin_mul_overflow(count, static_cast<uint64_t>(size), &count) ||
          count > bytes_.size())
        bad("an array with more elements than the file has bytes");
    if (tensor.element_bytes != 0 && count * tensor.element_bytes != bytes.size())
      bad("an array of {} elements of {} bytes has {} bytes", count, tensor.element_bytes, bytes.size());
    tensor.strides.assign(shape.size(), 1);
    int64_t step = 1;
    for (size_t i = 0; i < shape.size(); ++i) {
      const size_t d = fortran ? i : shape.size() - 1 - i;
      tensor.strides[d] = step;
      if (count > 0) step *= shape[d];
    }
    tensor.shape = std::move(shape);
    tensor.bytes = bytes;
  }

  static std::span<const std::byte> bytes_of(const std::string& text) {
    return std::as_bytes(std::span(text));
  }

  PickleValue* numpy(const std::string& what, const PickleValue* arguments) {
    const Items& list = *arguments->items();
    if (what.ends_with("_reconstruct")) return object("numpy.ndarray", arguments);  // BUILD fills it
    if (what.ends_with("_frombuffer")) {
      const PickleValue* raw = argument(list, 0, what);
      if (!raw->is(Kind::bytes)) bad("{} got no bytes", what);
      auto made = std::make_unique<PickleTensor>();
      set_element(*made, argument(list, 1, what));
      const std::string* order = argument(list, 3, what)->text();
      set_array(*made, wholes(argument(list, 2, what), what), order && *order == "F", bytes_of(*raw->text()));
      return make(Kind::tensor, std::move(made));
    }
    auto made = std::make_unique<PickleTensor>();
    set_element(*made, argument(list, 0, what));
    const PickleValue* raw = argument(list, 1, what);
    if (made->element_bytes == 0 || !(raw->is(Kind::bytes) || raw->is(Kind::text)))
      return object("numpy.scalar", arguments);
    set_array(*made, {}, false, bytes_of(*raw->text()));
    return make(Kind::tensor, std::move(made));
  }

  void build(PickleValue* target, const PickleValue* state) {
    if (target->kind == Kind::dict) {
      std::get<PickleDict>(target->data).attributes = state;
      return;
    }
    if (target->kind == Kind::tensor || target->kind == Kind::list || target->kind == Kind::set) return;
    if (target->kind != Kind::object) bad("it gives a state to a {}", target->kind_name());
    PickleObject& held = *std::get<std::unique_ptr<PickleObject>>(target->data);
    if (held.name == "numpy.ndarray" && state->is(Kind::tuple) && state->items()->size() >= 5) {
      const Items& fields = *state->items();  // version, shape, dtype, whether Fortran's order, bytes
      auto made = std::make_unique<PickleTensor>();
      set_element(*made, fields[2]);
      const bool fortran = fields[3]->integer().value_or(0) != 0;
      if (fields[4]->is(Kind::bytes) || fields[4]->is(Kind::text))
        set_array(*made, wholes(fields[1], "an array"), fortran, bytes_of(*fields[4]->text()));
      else
        set_array(*made, {0}, false, {});  // objects
      target->data = std::move(made);
      target->kind = Kind::tensor;
      return;
    }
    held.state = state;
    if (held.name == "joblib.numpy_pickle.NumpyArrayWrapper") read_joblib_array(target, held);
  }

  // joblib leaves an array's bytes in the stream right after the object that describes it.
  void read_joblib_array(PickleValue* target, const PickleObject& held) {
    if (!held.state->is(Kind::dict)) bad("an array wrapper without its fields");
    const auto field = [&](std::string_view key) {
      const PickleValue* found = held.state->find(key);
      if (!found) bad("an array wrapper without '{}'", key);
      return found;
    };
    auto made = std::make_unique<PickleTensor>();
    set_element(*made, field("dtype"));
    if (made->element_bytes == 0) bad("a joblib array of {}, which cannot be read", made->element);
    std::vector<int64_t> shape = wholes(field("shape"), "an array");
    const std::string* order = field("order")->text();
    const PickleValue* alignment = held.state->find("numpy_array_alignment_bytes");
    if (alignment && !alignment->is_none()) take(number<uint8_t>());
    uint64_t size = made->element_bytes;
    for (const int64_t extent : shape)
      if (extent < 0 || __builtin_mul_overflow(size, static_cast<uint64_t>(extent), &size))
        bad("an array with more elements than any machine holds");
    const std::byte* data = take(size);
    set_array(*made, std::move(shape), order && *order == "F", {data, size});
    made->in_input = true;
    target->data = std::move(made);
    target->kind = Kind::tensor;
  }

  // --- the machine

  static std::string unquoted(const std::string& repr) {
    return repr.size() >= 2 && (repr[0] == '\'' || repr[0] == '"') ? repr.substr(1, repr.size() - 2) : repr;
  }

  static void append_utf8(std::string& out, uint32_t c) {
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
  static std::string raw_unicode(const std::string& text) {
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

  bool step() {
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

  PickleValue* made_new(const PickleValue* type, const PickleValue* arguments) {
    if (!arguments->is(Kind::tuple)) bad("an object's arguments are no tuple");
    return instance(type, arguments);
  }
  uint64_t memo_key(const std::string& digits) {
    const auto value = decimal(digits)->integer();
    if (!value || *value < 0) bad("a memo number '{}'", printable(digits));
    return static_cast<uint64_t>(*value);
  }

  std::span<const std::byte> bytes_;
  const std::string& where_;
  const UnpickleOptions& options_;
  size_t at_ = 0;
  uint64_t spent_ = 0;
  PickleTree tree_;
  std::vector<PickleValue*> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, PickleValue*> memo_;
  std::map<std::string, size_t> storage_index_;
  std::unordered_map<const PickleValue*, std::pair<size_t, const PickleElement*>> storages_by_value_;
  PickleValue *none_ = nullptr, *true_ = nullptr, *false_ = nullptr;
};

PickleTree unpickle(std::span<const std::byte> bytes, const std::string& where,
                    const UnpickleOptions& options) {
  return Unpickler(bytes, where, options).run();
}

}  // namespace melete
