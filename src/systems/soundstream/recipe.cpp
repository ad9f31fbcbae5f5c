#include "core/base/error.h"
#include "systems/soundstream/system.h"
#include "systems/soundstream/task.h"
#include "train/feed.h"

namespace melete {

namespace {

class SoundStreamRecipe : public RecordingsRecipe {
 public:
  SoundStreamRecipe() {
    data.segment_seconds = 1;
    config_.model.codec.code_order = "stages";
  }

  std::string name() const override { return "soundstream"; }

  void settle() override {
    const SoundStreamConfig& codec = config_.model.codec;
    const int64_t frame = codec.samples_per_frame();
    data.rates_hz = {codec.sample_rate_hz};
    data.multiple_of = {frame};
    const int64_t segment = data.segment_length();
    require(segment >= frame,
            "[data] a segment of {} samples is shorter than a frame of {}; set data.segment_seconds", segment,
            frame);
  }

  std::unique_ptr<Task> make_task() override {
    return std::make_unique<SoundStreamTask>(config_, schema().json());
  }

  Feed open(const OpenRequest& request) override { return open_recordings(*this, request); }

  Batch example(int64_t items) override {
    const int64_t frame = data.multiple_of.front(), samples = data.segment_length() / frame * frame;
    Batch batch;
    batch.set("wave", 0.1 * at::randn({items, samples}));
    batch.set(Batch::length_column("wave"), at::full({items}, samples, at::kLong));
    return batch;
  }

 protected:
  void describe_task(Schema& s) override { describe(s, config_); }

 private:
  SoundStreamTaskConfig config_;
};

}  // namespace

std::unique_ptr<Recipe> make_soundstream_recipe() {
  return std::make_unique<SoundStreamRecipe>();
}

}  // namespace melete
