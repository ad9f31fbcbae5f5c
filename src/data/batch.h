// What crosses from data to tasks: named tensor columns and named word columns. Datasets say what columns
// they have, tasks ask for them by name, and nobody between them knows any.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace melete {

constexpr int64_t kPadding = -1;  // where an integer column is longer than its item

// One example before it stands beside others.
struct Item {
  struct Column {
    std::string name;
    at::Tensor values;    // [length, ...], or a single number
    int64_t length = -1;  // how much of it is the item's own; -1: all
  };
  std::vector<Column> columns;
  std::map<std::string, std::string> words;  // "text", "path"

  void add(std::string name, at::Tensor values, int64_t length = -1) {
    columns.push_back({std::move(name), std::move(values), length});
  }
  const Column* find(const std::string& name) const;
};

class Batch {
 public:
  int64_t number = 0;  // of the source that gave it

  int64_t items() const { return items_; }
  bool has(const std::string& name) const { return tensors_.count(name) > 0; }
  // An Error lists the columns that are there.
  const at::Tensor& operator[](const std::string& name) const;
  at::Tensor find(const std::string& name) const;  // undefined where there is none
  // [items] int64 on the host: how much of each row is the item's own.
  const at::Tensor& lengths(const std::string& name) const { return (*this)[length_column(name)]; }

  bool has_words(const std::string& name) const { return words_.count(name) > 0; }
  const std::vector<std::string>& words(const std::string& name) const;
  std::vector<std::string> find_words(const std::string& name) const;  // empty where there are none

  // Rows are items; all columns have the same number of them.
  void set(const std::string& name, at::Tensor values);
  void set_words(const std::string& name, std::vector<std::string> values);

  // Lengths stay on the host, where whoever cuts and checks by them would have to wait for them; whole
  // numbers are kept there, too.
  void move_to(at::Device device);
  // The column as it was before it went to a device, without waiting for that device where it is kept.
  at::Tensor on_host(const std::string& name) const;
  at::Tensor find_on_host(const std::string& name) const { return has(name) ? on_host(name) : at::Tensor(); }
  Batch rows(int64_t first, int64_t count) const;

  static std::string length_column(const std::string& name) { return name + kLengthEnding; }

 private:
  static constexpr const char* kLengthEnding = ".length";

  void expect_items(const std::string& name, int64_t count);
  std::string list() const;

  int64_t items_ = 0;
  std::map<std::string, at::Tensor> tensors_;
  std::map<std::string, at::Tensor> kept_;  // on the host, of those that went to a device
  std::map<std::string, std::vector<std::string>> words_;
};

enum class Pad { longest, curtail };

// Items of unequal length become one tensor a column, padded at the end (integers with -1, floats with 0) or
// cut to the shortest, with a column of lengths beside each.
Batch collate(const std::vector<Item>& items, Pad pad = Pad::longest);

}  // namespace melete
