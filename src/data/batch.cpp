#include "data/batch.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "core/device.h"

namespace melete {

namespace {

int64_t length_of(const Item::Column& column) {
  return column.length >= 0 ? column.length : column.values.size(0);
}

// values: the same column of every item
void stack(Batch& batch, const std::vector<const Item::Column*>& values, Pad pad) {
  const at::Tensor& first = values.front()->values;
  const std::string& name = values.front()->name;
  const auto count = static_cast<int64_t>(values.size());
  std::vector<int64_t> shape = first.sizes().vec();
  const bool sequence = !shape.empty();
  for (const Item::Column* column : values) {
    const at::Tensor& one = column->values;
    require(one.scalar_type() == first.scalar_type() && one.dim() == first.dim() &&
                (!sequence || one.sizes().slice(1) == first.sizes().slice(1)),
            "[data] the column `{}` is [{}] in one item of a batch and [{}] in another", name,
            fmt::join(first.sizes(), ", "), fmt::join(one.sizes(), ", "));
    if (sequence)
      shape.front() =
          pad == Pad::longest ? std::max(shape.front(), one.size(0)) : std::min(shape.front(), one.size(0));
  }
  std::vector<int64_t> whole = shape;
  whole.insert(whole.begin(), count);
  // Plain memory, not at::full and narrow: those would start an OpenMP team in every worker thread.
  at::Tensor rows = at::empty(whole, first.options());
  const auto row_bytes = static_cast<size_t>(rows.nbytes()) / static_cast<size_t>(count);
  const int padding = at::isFloatingType(first.scalar_type()) ? 0 : 0xff;  // all bits set is -1
  auto* to = static_cast<char*>(rows.data_ptr());
  for (const Item::Column* column : values) {
    const at::Tensor one = column->values.contiguous();
    const size_t copied = std::min(static_cast<size_t>(one.nbytes()), row_bytes);
    if (copied > 0) std::memcpy(to, one.data_ptr(), copied);
    std::memset(to + copied, padding, row_bytes - copied);
    to += row_bytes;
  }
  batch.set(name, std::move(rows));
  if (!sequence) return;
  at::Tensor lengths = at::empty({count}, at::kLong);
  for (int64_t i = 0; i < count; ++i)
    lengths.data_ptr<int64_t>()[i] = std::min(length_of(*values[static_cast<size_t>(i)]), shape.front());
  batch.set(Batch::length_column(name), std::move(lengths));
}

}  // namespace

const Item::Column* Item::find(const std::string& name) const {
  for (const Column& column : columns)
    if (column.name == name) return &column;
  return nullptr;
}

Batch collate(const std::vector<Item>& items, Pad pad) {
  require(!items.empty(), "[data] expected at least one item in a batch, got none");
  Batch batch;
  for (const Item::Column& wanted : items.front().columns) {
    std::vector<const Item::Column*> values;
    for (const Item& item : items) {
      values.push_back(item.find(wanted.name));
      require(values.back() != nullptr && item.columns.size() == items.front().columns.size(),
              "[data] expected the same {} columns in every item, got one with {} and `{}` missing or not",
              items.front().columns.size(), item.columns.size(), wanted.name);
    }
    stack(batch, values, pad);
  }
  for (const auto& [name, first] : items.front().words) {
    std::vector<std::string> values;
    for (const Item& item : items) {
      const auto found = item.words.find(name);
      values.push_back(found == item.words.end() ? "" : found->second);
    }
    batch.set_words(name, std::move(values));
  }
  return batch;
}

std::string Batch::list() const {
  std::vector<std::string> names;
  for (const auto& [name, values] : tensors_) names.push_back(name);
  for (const auto& [name, values] : words_) names.push_back(name + " (words)");
  return names.empty() ? "nothing" : fmt::format("{}", fmt::join(names, ", "));
}

const at::Tensor& Batch::operator[](const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    fail("[data] expected a column `{}` in the batch, which has: {}", name, list());
  return found->second;
}

at::Tensor Batch::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? at::Tensor() : found->second;
}

const std::vector<std::string>& Batch::words(const std::string& name) const {
  const auto found = words_.find(name);
  if (found == words_.end()) fail("[data] expected words `{}` in the batch, which has: {}", name, list());
  return found->second;
}

std::vector<std::string> Batch::find_words(const std::string& name) const {
  const auto found = words_.find(name);
  return found == words_.end() ? std::vector<std::string>{} : found->second;
}

void Batch::expect_items(const std::string& name, int64_t count) {
  if (tensors_.empty() && words_.empty()) items_ = count;
  require(count == items_, "[data] the column `{}` has {} rows where the batch has {} items", name, count,
          items_);
}

void Batch::set(const std::string& name, at::Tensor values) {
  require(values.defined() && values.dim() > 0, "[data] the column `{}` has no rows", name);
  expect_items(name, values.size(0));
  tensors_[name] = std::move(values);
  kept_.erase(name);
}

void Batch::set_words(const std::string& name, std::vector<std::string> values) {
  expect_items(name, static_cast<int64_t>(values.size()));
  words_[name] = std::move(values);
}

void Batch::move_to(at::Device device) {
  for (auto& [name, values] : tensors_) {
    if (name.ends_with(kLengthEnding)) continue;
    if (values.device().is_cpu() && !device.is_cpu() && !at::isFloatingType(values.scalar_type()))
      kept_[name] = values;
    values = sent_to(device, values);
  }
}

at::Tensor Batch::on_host(const std::string& name) const {
  const auto kept = kept_.find(name);
  return kept != kept_.end() ? kept->second : (*this)[name].to(at::kCPU);
}

Batch Batch::rows(int64_t first, int64_t count) const {
  Batch some;
  some.number = number;
  for (const auto& [name, values] : tensors_) some.set(name, values.narrow(0, first, count));
  for (const auto& [name, values] : kept_) some.kept_[name] = values.narrow(0, first, count);
  for (const auto& [name, values] : words_)
    some.set_words(name, {values.begin() + first, values.begin() + first + count});
  return some;
}

}  // namespace melete
