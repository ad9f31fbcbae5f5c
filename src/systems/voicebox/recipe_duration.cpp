// The duration predictor, from timings alone (`melete data align`, or those of another aligner).
#include <utility>

#include "core/base/error.h"
#include "data/base/timings.h"
#include "data/recordings.h"
#include "systems/voicebox/system.h"
#include "systems/voicebox/task_duration.h"
#include "train/feed.h"

namespace melete {

namespace {

using namespace voicebox;

// One item a recording: ids of its phonemes and how long each lasts, both whole.
class TimingsDataset final : public Dataset {
 public:
  TimingsDataset(std::vector<SpokenTiming> list, PhonemeTable table, double frames_per_second)
      : list_(std::move(list)), table_(std::move(table)), frames_per_second_(frames_per_second) {}

  int64_t size() const override { return static_cast<int64_t>(list_.size()); }

  Item draw(uint64_t, uint64_t, int64_t index) override {
    const SpokenTiming& timing = list_.at(static_cast<size_t>(index));
    const at::Tensor ends = at::tensor(timing.ends_seconds, at::kDouble);
    const at::Tensor starts = at::cat({at::zeros({1}, at::kDouble), ends.narrow(0, 0, ends.size(0) - 1)});
    Item item;
    item.add("phonemes", at::tensor(table_.ids(timing.phonemes), at::kLong));
    item.add("durations", ((ends - starts) * frames_per_second_).to(at::kFloat));
    item.words = {{"path", timing.path}};
    return item;
  }

  double length(int64_t index) const override {
    return static_cast<double>(list_.at(static_cast<size_t>(index)).phonemes.size());
  }

 private:
  std::vector<SpokenTiming> list_;
  PhonemeTable table_;
  double frames_per_second_;
};

class DurationRecipe : public Recipe {
 public:
  DurationRecipe() {
    batch_size = 16;
    loader_.like_length = 8;
    model_.phonemes = 0;
    train.ema.enabled = true;
  }

  std::string name() const override { return "duration"; }

  void settle() override {
    const Timings timings = read_timings(data_from);
    phonemizer_ = timings.phonemizer;
    if (phonemes_.empty()) {
      std::vector<Phonemes> texts;
      for (const SpokenTiming& timing : timings.list) texts.push_back(timing.phonemes);
      phonemes_ = PhonemeTable::of(texts).listed();
    }
    settle_size(model_.phonemes, PhonemeTable(phonemes_).size(), "model.phonemes", "timings");
  }

  std::string settle_on_paper() override {
    if (model_.phonemes == 0) model_.phonemes = 64;
    return fmt::format("{} phonemes", model_.phonemes);
  }

  std::unique_ptr<Task> make_task() override {
    return std::make_unique<DurationTask>(model_, task_, schema().json());
  }

  Feed open(const OpenRequest& request) override {
    std::vector<SpokenTiming> train_list = read_timings(data_from).list, valid_list;
    if (!valid_from.empty()) {
      valid_list = read_timings(valid_from).list;
    } else {
      std::vector<ManifestEntry> entries;
      for (const SpokenTiming& timing : train_list) entries.emplace_back().path = timing.path;
      const Split parts = split(entries, loader_.valid_fraction, static_cast<uint64_t>(loader_.split_seed));
      const TimingIndex index(std::exchange(train_list, {}));
      for (const ManifestEntry& entry : parts.train) train_list.push_back(*index.find(entry.path));
      for (const ManifestEntry& entry : parts.valid) valid_list.push_back(*index.find(entry.path));
    }
    return make_feed(*this, loader_, collection(std::move(train_list)), collection(std::move(valid_list)),
                     request);
  }

  Batch example(int64_t items) override {
    const int64_t count = 50;
    Batch batch;
    batch.set("phonemes", at::randint(model_.phonemes, {items, count}, at::kLong));
    batch.set("durations", 5 + at::randn({items, count}));
    return batch;
  }

 protected:
  void describe_data(Schema& schema) override { schema.section("data", loader_, "how items become batches"); }

  void describe_task(Schema& s) override {
    s.option("frames_per_second", frames_per_second_, "what durations are counted in").at_least(1);
    s.section("phonemizer", phonemizer_, "how text became phonemes; filled in: as the timings say");
    s.option("phonemes", phonemes_, "that it knows; filled in: those of the timings");
    s.section("model", model_, "what is trained");
    s.section("task", task_, "how it is trained");
  }

 private:
  Collection collection(std::vector<SpokenTiming> list) const {
    Collection result;
    if (list.empty()) return result;
    for (const SpokenTiming& timing : list) result.names.push_back(timing.path);
    result.description = fmt::format("timings of {} recordings", list.size());
    result.items =
        std::make_shared<TimingsDataset>(std::move(list), PhonemeTable(phonemes_), frames_per_second_);
    return result;
  }

  LoaderConfig loader_;
  double frames_per_second_ = 100;
  PhonemizerConfig phonemizer_;
  std::string phonemes_;
  DurationConfig model_;
  DurationTaskConfig task_;
};

}  // namespace

std::unique_ptr<Recipe> make_duration_recipe() {
  return std::make_unique<DurationRecipe>();
}

}  // namespace melete
