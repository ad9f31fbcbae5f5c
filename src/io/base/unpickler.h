// The machine behind unpickle(): its stack and memo, and what its names mean. For unpickler*.cpp alone.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <unordered_map>

#include "core/base/error.h"
#include "io/base/mapped_file.h"
#include "io/base/pickle.h"
#include "io/base/pickle_names.h"

namespace melete {

class Unpickler {
 public:
  using Kind = PickleValue::Kind;
  using Items = PickleValue::Items;

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

  // --- names: unpickler_names.cpp

  PickleValue* name(const std::string& module, const std::string& attribute);
  const std::string& name_of(const PickleValue* value);
  const PickleValue* argument(const Items& list, size_t index, std::string_view of);
  int64_t whole(const PickleValue* value, std::string_view of);
  std::vector<int64_t> wholes(const PickleValue* value, std::string_view of);
  PickleValue* call(const PickleValue* function, const PickleValue* arguments);
  Items copy(const PickleValue* value);
  PickleValue* instance(const PickleValue* type, const PickleValue* arguments);
  PickleValue* encoded(const Items& list);
  void spend(uint64_t amount);

  // --- tensors and arrays: unpickler_arrays.cpp

  PickleValue* storage(const PickleValue* id);
  PickleValue* tensor(const std::string& what, const Items& list);
  void set_element(PickleTensor& tensor, const PickleValue* dtype);
  void set_array(PickleTensor& tensor, std::vector<int64_t> shape, bool fortran,
                 std::span<const std::byte> bytes);
  PickleValue* numpy(const std::string& what, const PickleValue* arguments);
  void build(PickleValue* target, const PickleValue* state);
  void read_joblib_array(PickleValue* target, const PickleObject& held);

  // --- opcodes: unpickler.cpp

  bool step();
  PickleValue* made_new(const PickleValue* type, const PickleValue* arguments);
  uint64_t memo_key(const std::string& digits);

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

}  // namespace melete
