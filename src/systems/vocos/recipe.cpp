// A vocoder from recordings alone: their mel frames, and back.
#include "core/base/error.h"
#include "systems/vocos/system.h"
#include "systems/vocos/task.h"
#include "train/feed.h"

namespace melete {

namespace {

class VocosRecipe : public RecordingsRecipe {
 public:
  VocosRecipe() {
    data.segment_seconds = 1;
    train.ema.enabled = true;
  }

  std::string name() const override { return "vocos"; }

  void settle() override {
    config_.settle();
    data.rates_hz = {config_.mel.rate_hz};
    data.multiple_of = {config_.mel.hop};
    require(data.segment_length() >= 2 * config_.mel.n_fft,
            "[data.segment_seconds] expected at least {} samples, got {}", 2 * config_.mel.n_fft,
            data.segment_length());
  }

  std::unique_ptr<Task> make_task() override {
    return std::make_unique<vocos::VocosTask>(config_, schema().json());
  }

  Feed open(const OpenRequest& request) override { return open_recordings(*this, request); }

  Batch example(int64_t items) override {
    const int64_t hop = config_.mel.hop, samples = data.segment_length() / hop * hop;
    Batch batch;
    batch.set("wave", 0.1 * at::randn({items, samples}));
    batch.set(Batch::length_column("wave"), at::full({items}, samples, at::kLong));
    return batch;
  }

 protected:
  void describe_task(Schema& s) override { vocos::describe(s, config_); }

 private:
  vocos::TaskConfig config_;
};

}  // namespace

std::unique_ptr<Recipe> make_vocos_recipe() {
  return std::make_unique<VocosRecipe>();
}

}  // namespace melete
