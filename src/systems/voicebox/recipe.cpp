// Voicebox from recordings: told what to say by phonemes, by semantic tokens, or by nothing.
#include "core/base/error.h"
#include "data/base/timings.h"
#include "data/mapped_batches.h"
#include "dist/group.h"
#include "roles/open.h"
#include "systems/voicebox/load.h"
#include "systems/voicebox/masks.h"
#include "systems/voicebox/phoneme_frames.h"
#include "systems/voicebox/system.h"
#include "systems/voicebox/task.h"
#include "train/feed.h"

namespace melete {

namespace {

using namespace voicebox;

constexpr int64_t kBatchesMeasured = 4;  // for the scale of the frames

class VoiceboxRecipe : public RecordingsRecipe {
 public:
  VoiceboxRecipe() {
    data.segment_seconds = 3;
    model_.frame_dim = model_.tokens = 0;
    train.ema.enabled = true;
  }

  std::string name() const override { return "voicebox"; }

  void settle() override {
    if (!distill_.empty()) settle_as_teacher();
    require(!features_from_.empty(),
            "[features_from] no frames given to work on: mel, or a run of vocos or of a codec");
    features_ = open_features(features_from_, mel_, "", frozen_device);
    settle_identity(features_identity_, features_->identity(), "features_from");
    settle_size(model_.frame_dim, features_->dim(), "model.frame_dim", "frames");
    data.rates_hz = {features_->rate_hz()};
    data.multiple_of = {features_->samples_per_frame()};
    if (told_by_ == "semantic") {
      require(!semantic_from_.empty(),
              "[semantic_from] no semantic tokenizer given; make one with `melete train kmeans`, or set "
              "told_by none");
      tokenizer_ = open_semantic_tokenizer(semantic_from_, frozen_device);
      settle_identity(semantic_identity_, tokenizer_->identity(), "semantic_from");
      settle_size(model_.tokens, tokenizer_->codebook_size(), "model.tokens", "tokenizer");
      data.rates_hz.push_back(tokenizer_->rate_hz());
      data.multiple_of.push_back(tokenizer_->samples_per_token());
    } else if (told_by_ == "phonemes") {
      settle_phonemes();
    }
  }

  std::string settle_on_paper() override {
    const bool phonemes = told_by_ == "phonemes";
    if (!features_from_.empty() && !(phonemes && timings_.empty())) {
      settle();
      return "";
    }
    if (model_.frame_dim == 0) model_.frame_dim = features_from_ == kMelFrames ? mel_.mels : 100;
    if (model_.tokens == 0 && told_by_ != "none") model_.tokens = phonemes ? 64 : 500;
    scale_ = {0, 1};
    return fmt::format("frames of {} values, {} {}", model_.frame_dim, model_.tokens,
                       phonemes ? "phonemes" : "semantic tokens");
  }

  std::unique_ptr<Task> make_task() override {
    return std::make_unique<VoiceboxTask>(model_, task_, scale_, features_, schema().json(), teacher_,
                                          kept_lexicon(phonemizer_));
  }

  Feed open(const OpenRequest& request) override {
    if (timing_index_) require_timings();
    Feed feed = mapped(open_recordings(*this, request), [this](Batch& batch) { add_columns(batch); });
    if (scale_.deviation == 0) measure_scale(*feed.training, request.group);
    return mapped(std::move(feed),
                  [scale = scale_](Batch& batch) { batch.set("frames", scale.apply(batch["frames"])); });
  }

  Batch example(int64_t items) override {
    const int64_t frames = 300;
    Batch batch;
    batch.set("frames", at::randn({items, frames, model_.frame_dim}));
    batch.set(Batch::length_column("frames"), at::full({items}, frames, at::kLong));
    const int64_t tokens = told_by_ == "phonemes" ? frames : frames / 2;
    if (model_.tokens > 0) batch.set("tokens", at::randint(model_.tokens, {items, tokens}, at::kLong));
    return batch;
  }

 protected:
  void describe_task(Schema& s) override {
    s.option("features_from", features_from_,
             "what turns sound into frames and back: mel, or a run of vocos or of a codec");
    s.section("mel", mel_, "frames, where features_from is mel");
    s.option("features_identity", features_identity_, "whose frames these are; filled in");
    s.option("frame_mean", scale_.mean, "of the frames' values; filled in");
    s.option("frame_deviation", scale_.deviation,
             "of the frames' values; 0: measured at the start, and filled in")
        .at_least(0);
    s.option("told_by", told_by_, "what tells it what to say").one_of({"phonemes", "semantic", "none"});
    s.option("timings", timings_,
             "when phonemes are said: what `melete data align` wrote, a folder of TextGrids, or a CTM file");
    s.section("phonemizer", phonemizer_, "how text became phonemes; filled in where the timings say");
    s.option("phonemes", phonemes_, "that it knows; filled in: those of the timings");
    s.option("semantic_from", semantic_from_,
             "semantic tokenizer: what `melete train kmeans` or import wrote");
    s.option("semantic_identity", semantic_identity_, "whose tokens these are; filled in");
    s.option("distill", distill_,
             "run of voicebox that teaches: the new network says in few steps and without guidance what that "
             "one says in many; network, frames and phonemes are as that one has them");
    s.section("model", model_, "what is trained");
    s.section("task", task_, "how it is trained");
  }

 private:
  void settle_as_teacher() {
    const FoundCheckpoint found = open_checkpoint(distill_, "distill", "voicebox");
    const auto& settings = found.checkpoint.meta.at("config");
    nlohmann::ordered_json same;
    for (const char* name : {"features_from", "mel", "frame_mean", "frame_deviation", "told_by", "phonemizer",
                             "phonemes", "semantic_from", "model"})
      if (settings.contains(name)) same[name] = settings.at(name);
    schema().apply(same);
    teacher_ = load_voicebox(distill_, Weights::best, "", frozen_device).model;
  }

  void add_columns(Batch& batch) const {
    const at::NoGradGuard no_grad;
    const at::Tensor frames = features_->encode(batch["wave"]);
    batch.set("frames", frames);
    const at::Tensor samples = batch.lengths("wave");
    at::Tensor lengths = at::empty_like(samples);
    for (int64_t i = 0; i < samples.numel(); ++i)
      lengths.data_ptr<int64_t>()[i] =
          std::min(features_->frames(samples.data_ptr<int64_t>()[i]), frames.size(1));
    batch.set(Batch::length_column("frames"), lengths);
    if (tokenizer_) batch.set("tokens", tokenizer_->tokenize(batch["wave_1"]));
    if (timing_index_) batch.set("tokens", phonemes_by_frame(batch, lengths, frames.size(1)));
  }

  void settle_phonemes() {
    require(!timings_.empty(),
            "[timings] told_by phonemes needs to know when they are said; make them with `melete data "
            "align`, or set told_by");
    require(data.segment_length() == 0,
            "[data.segment_seconds] phonemes are told of whole recordings: expected 0, got {}",
            data.segment_seconds);
    Timings timings = read_timings(timings_);
    if (timings.from_melete) phonemizer_ = timings.phonemizer;
    read_lexicon(phonemizer_);
    if (phonemes_.empty()) {
      std::vector<Phonemes> texts;
      for (const SpokenTiming& timing : timings.list) texts.push_back(timing.phonemes);
      phonemes_ = PhonemeTable::of(texts).listed();
    }
    table_ = PhonemeTable(phonemes_);
    settle_size(model_.tokens, table_.size(), "model.tokens", "timings");
    timing_index_ = std::make_shared<TimingIndex>(std::move(timings.list));
  }

  // Before the first step rather than in the middle of an epoch.
  void require_timings() const {
    for (const std::string& from : {data_from, valid_from}) {
      if (from.empty()) continue;
      for (const ManifestEntry& entry : load_entries(from))
        require(timing_index_->find(entry.path) != nullptr,
                "[timings] {} does not know {}; `melete data align` writes those of all recordings", timings_,
                entry.path);
    }
  }

  // int64 [items, frames], padded with -1
  at::Tensor phonemes_by_frame(const Batch& batch, const at::Tensor& lengths, int64_t frames) const {
    const at::Tensor tokens = at::full({batch.items(), frames}, kPadding, at::kLong);
    const auto& paths = batch.words("path");
    for (int64_t row = 0; row < batch.items(); ++row) {
      const auto count = lengths[row].item<int64_t>();
      const SpokenTiming& timing = *timing_index_->find(paths.at(static_cast<size_t>(row)));
      const auto counts = frames_of(timing.ends_seconds, features_->frames_per_second(), count);
      tokens[row].narrow(0, 0, count).copy_(ids_by_frame(table_.ids(timing.phonemes), counts));
    }
    return tokens;
  }

  // Values of the frames that are no padding, in a row.
  static at::Tensor frames_there(const Batch& batch) {
    const at::Tensor& frames = batch["frames"];
    return frames.masked_select(first_frames(batch.lengths("frames"), frames.size(1)).unsqueeze(2));
  }

  // By the main rank, for all of them.
  void measure_scale(BatchSource& source, Group& group) {
    nlohmann::json measured;
    if (group.main()) {
      std::vector<at::Tensor> values;
      for (int64_t number = 0; number < kBatchesMeasured; ++number)
        values.push_back(frames_there(source.batch(number)));
      const at::Tensor all = at::cat(values).to(at::kDouble);
      measured = {all.mean().item<double>(), all.std().item<double>()};
    }
    measured = nlohmann::json::parse(group.from_main(measured.dump()));
    scale_ = {measured[0], measured[1]};
    require(scale_.deviation > 0, "[features_from] all frames of the training data are the same");
  }

  std::string features_from_, features_identity_, told_by_ = "semantic", semantic_from_, semantic_identity_;
  std::string timings_, phonemes_, distill_;
  Voicebox teacher_{nullptr};
  MelFramesConfig mel_ = speech_mel();
  PhonemizerConfig phonemizer_;
  PhonemeTable table_;
  std::shared_ptr<const TimingIndex> timing_index_;  // where it is told by phonemes
  FrameScale scale_;
  VoiceboxConfig model_;
  TaskConfig task_;
  std::shared_ptr<const AudioFeatures> features_;
  std::shared_ptr<const SemanticTokenizer> tokenizer_;
};

}  // namespace

std::unique_ptr<Recipe> make_voicebox_recipe() {
  return std::make_unique<VoiceboxRecipe>();
}

}  // namespace melete
