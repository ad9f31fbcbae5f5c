// The aligner from recordings and what is said in them: which frames belong to which phoneme.
#include "core/base/error.h"
#include "data/base/phonemes.h"
#include "systems/voicebox/phoneme_frames.h"
#include "systems/voicebox/system.h"
#include "systems/voicebox/task_aligner.h"
#include "train/feed.h"

namespace melete {

namespace {

using namespace voicebox;

class AlignerRecipe : public RecordingsRecipe {
 public:
  AlignerRecipe() {
    batch_size = 16;
    data.like_length = 8;
    mel_.rate_hz = 16000;
    mel_.mels = 80;
    mel_.hop = 160;
    mel_.edges = "same";
    model_.phonemes = model_.frame_dim = 0;
    model_.phoneme_dim = 128;
    train.ema.enabled = false;
  }

  std::string name() const override { return "aligner"; }

  void settle() override {
    check();
    read_lexicon(phonemizer_);
    if (phonemes_.empty()) phonemes_ = phonemes_of_data();
    table_ = PhonemeTable(phonemes_);
    settle_size(model_.phonemes, table_.size(), "model.phonemes", "texts");
  }

  std::string settle_on_paper() override {
    check();
    if (model_.phonemes == 0) model_.phonemes = 64;
    return fmt::format("{} phonemes", model_.phonemes);
  }

  std::unique_ptr<Task> make_task() override {
    return std::make_unique<AlignerTask>(model_, task_, schema().json(), kept_lexicon(phonemizer_));
  }

  Feed open(const OpenRequest& request) override {
    return mapped(open_recordings(*this, request, FeedOptions{.with_text = true}),
                  [this](Batch& batch) { add_columns(batch); });
  }

  Batch example(int64_t items) override {
    const int64_t frames = 300, count = 40;
    Batch batch;
    batch.set("mel", at::randn({items, frames, model_.frame_dim}));
    batch.set(Batch::length_column("mel"), at::full({items}, frames, at::kLong));
    batch.set("phonemes", at::randint(model_.phonemes, {items, count}, at::kLong));
    batch.set(Batch::length_column("phonemes"), at::full({items}, count, at::kLong));
    return batch;
  }

 protected:
  void describe_task(Schema& s) override {
    s.section("phonemizer", phonemizer_, "how text becomes phonemes");
    s.option("phonemes", phonemes_, "that it knows; filled in: those of the texts");
    s.section("mel", mel_, "frames that it hears");
    s.section("model", model_, "what is trained");
    s.section("task", task_, "how it is trained");
  }

 private:
  void check() {
    require(data.segment_length() == 0,
            "[data.segment_seconds] a text is that of a whole recording: expected 0, got {}",
            data.segment_seconds);
    data.rates_hz = {mel_.rate_hz};
    settle_size(model_.frame_dim, mel_.mels, "model.frame_dim", "mel frames");
  }

  std::string phonemes_of_data() const {
    const Phonemizer phonemizer(phonemizer_);
    std::vector<Phonemes> texts;
    for (const std::string& from : {data_from, valid_from}) {
      if (from.empty()) continue;
      for (const ManifestEntry& entry : load_entries(from))
        if (!entry.text.empty()) texts.push_back(phonemizer(entry.text));
    }
    require(!texts.empty(), "[data] none of the recordings of {} has a text", data_from);
    return PhonemeTable::of(texts).listed();
  }

  void add_columns(Batch& batch) const {
    const at::NoGradGuard no_grad;
    const MelFrames mel(mel_);
    const AlignerFrames heard = aligner_frames(mel, batch["wave"], batch.lengths("wave"));
    const Phonemizer phonemizer(phonemizer_);
    std::vector<Item> items;
    for (const std::string& text : batch.words("text"))
      items.emplace_back().add("phonemes", at::tensor(table_.ids(phonemizer(text)), at::kLong));
    const Batch said = collate(items);
    batch.set("mel", heard.frames);
    batch.set(Batch::length_column("mel"), heard.lengths);
    batch.set("phonemes", said["phonemes"]);
    batch.set(Batch::length_column("phonemes"), said.lengths("phonemes"));
    for (int64_t row = 0; row < batch.items(); ++row)
      require(said.lengths("phonemes")[row].item<int64_t>() <= heard.lengths[row].item<int64_t>(),
              "[data] {} has more phonemes than frames: its text cannot be what is said in it",
              batch.words("path").at(static_cast<size_t>(row)));
  }

  PhonemizerConfig phonemizer_;
  std::string phonemes_;
  PhonemeTable table_;
  MelFramesConfig mel_;
  AlignerConfig model_;
  AlignerTaskConfig task_;
};

}  // namespace

std::unique_ptr<Recipe> make_aligner_recipe() {
  return std::make_unique<AlignerRecipe>();
}

}  // namespace melete
