#include "io/base/unpickler.h"

namespace melete {

namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

PickleValue* Unpickler::storage(const PickleValue* id) {
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

PickleValue* Unpickler::tensor(const std::string& what, const Items& list) {
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

// `state`: what numpy.dtype was called with and built from: ("f8", ...) and (3, "<", ...).
void Unpickler::set_element(PickleTensor& tensor, const PickleValue* dtype) {
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

void Unpickler::set_array(PickleTensor& tensor, std::vector<int64_t> shape, bool fortran,
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

PickleValue* Unpickler::numpy(const std::string& what, const PickleValue* arguments) {
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

void Unpickler::build(PickleValue* target, const PickleValue* state) {
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
void Unpickler::read_joblib_array(PickleValue* target, const PickleObject& held) {
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

}  // namespace melete
