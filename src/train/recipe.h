// One thing that can be trained: all its settings in one table, where its batches come from, and how to make
// its task from them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/schema.h"
#include "data/loader.h"
#include "data/recordings.h"
#include "train/task.h"
#include "train/trainer_config.h"

namespace melete {

class Group;
class Reporter;

// What a training loop reads from.
struct Feed {
  std::unique_ptr<BatchSource> training, validation;
  std::vector<std::string> description;  // lines for a person
  int64_t training_items = 0;
  double training_seconds = 0;  // of recordings; 0: not known
};

struct OpenRequest {
  uint64_t seed = 0;
  Group& group;        // all ranks must have the same data
  Reporter& reporter;  // hears of files that are skipped
};

class Recipe {
 public:
  virtual ~Recipe() = default;

  virtual std::string name() const = 0;
  // Every setting: what all recipes share, then the recipe's own.
  Schema schema();
  // After settings are read: what follows from others (the data's rate from the model's), and checks across
  // options. Frozen models are loaded here.
  virtual void settle() = 0;
  // The same for questions about sizes alone, where frozen models and data need not be there; says what it
  // assumed about them.
  virtual std::string settle_on_paper() {
    settle();
    return "";
  }
  virtual std::unique_ptr<Task> make_task() = 0;
  // Whether checkpoints of that task have this recipe's model: what `train --from` may begin with.
  virtual bool can_start_from(const std::string& task) const { return task == name(); }
  // Finds, checks and opens the data. A wrong path is an Error before anything is written.
  virtual Feed open(const OpenRequest& request) = 0;
  // Noise in the shape of a batch: what bench, plan and the tests of every recipe train on.
  virtual Batch example(int64_t items) = 0;

  // For plans: how much of a recording one item is; 0 where items are not cut from recordings.
  virtual double item_seconds() const { return 0; }
  virtual double item_bytes() const { return 0; }  // read from disk

  std::string data_from, valid_from;  // folder, manifest or token folder
  int64_t batch_size = 4;
  int64_t threads = 0;
  double epochs = 0;  // 0: as train.steps says
  TrainerConfig train;
  // Where frozen models that settle() loads compute: where the training is. Not a setting; known to whoever
  // knows the rank.
  at::Device frozen_device = at::kCPU;

 protected:
  virtual void describe_data(Schema& schema) = 0;
  virtual void describe_task(Schema& schema) = 0;
};

// A recipe whose data are recordings, or what was made of them.
class RecordingsRecipe : public Recipe {
 public:
  RecordingsConfig data;

  double item_seconds() const override;
  double item_bytes() const override;

 protected:
  void describe_data(Schema& schema) override {
    schema.section("data", data, "how recordings become batches");
  }
};

// Where `epochs` is set, train.steps becomes what it amounts to with this data: batches reach over the border
// between two passes, so it is the items that count.
void settle_epochs(Recipe& recipe, Feed& feed);
// A size that is 0 in the settings comes from a frozen model; one that is not must agree with it. found = 0:
// that model is not at hand.
void settle_size(int64_t& setting, int64_t found, const char* name, const std::string& of);
// Whose tokens a run was trained on: filled in at its start, and the same for ever after.
void settle_identity(std::string& setting, const std::string& found, const char* what);

}  // namespace melete
