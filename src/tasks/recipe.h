// One thing that can be trained: all its settings in one table, and how to make its task from them.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/schema.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "io/tensors.h"
#include "train/task.h"
#include "train/trainer_config.h"

namespace melete {

// Batches that need no recordings.
struct TokenSources {
  std::unique_ptr<BatchSource> training, validation;  // validation may be null
  std::vector<std::string> description;
};

class Recipe {
 public:
  virtual ~Recipe() = default;

  virtual std::string name() const = 0;
  // Every setting: what all recipes share, then the task's own.
  Schema schema();
  // After settings are read: what follows from others (the data's rate from the model's), and checks across
  // options.
  virtual void settle() = 0;
  // The same for questions about sizes alone, where frozen models and data need not be there; says what it
  // assumed about them.
  virtual std::string settle_on_paper() {
    settle();
    return "";
  }
  virtual std::unique_ptr<Task> make_task() = 0;

  // On resume: bytes of a file that a run keeps in its checkpoints, found by the main rank, and taken by
  // every rank before settle() where the file itself is no longer there.
  virtual std::string kept_file(const TensorMap& /*checkpoint*/, const std::string& /*path*/) { return ""; }
  virtual void take_kept_file(std::string /*bytes*/) {}

  // For tasks that train on tokens: a source that makes them from recordings (which outlive it); null for
  // tasks that take the sound itself.
  virtual std::unique_ptr<BatchSource> tokens(BatchSource& /*audio*/) { return nullptr; }
  // Where data_from holds tokens that were made before: nothing is read from recordings then.
  virtual std::optional<TokenSources> token_sources(uint64_t /*seed*/, int /*rank*/, int /*ranks*/) {
    return std::nullopt;
  }

  std::string data_from, valid_from;  // folder or manifest
  int64_t batch_size = 4;
  int64_t threads = 0;
  DataConfig data;
  TrainerConfig train;

 protected:
  virtual void describe_task(Schema& schema) = 0;
};

std::vector<std::string> recipe_names();
std::unique_ptr<Recipe> make_recipe(const std::string& name);  // an Error names the nearest

}  // namespace melete
