// Voicebox from recordings: told what to say by semantic tokens, or by nothing.
#include "core/base/error.h"
#include "data/mapped_batches.h"
#include "dist/group.h"
#include "roles/open.h"
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
    require(!features_from_.empty(),
            "[features_from] no frames given to work on: a run of a codec, for example");
    features_ = open_audio_features(features_from_);
    settle_identity(features_identity_, features_->identity(), "features_from");
    settle_size(model_.frame_dim, features_->dim(), "model.frame_dim", "frames");
    data.rates_hz = {features_->rate_hz()};
    data.multiple_of = {features_->samples_per_frame()};
    if (told_by_ == "semantic") {
      require(!semantic_from_.empty(),
              "[semantic_from] no semantic tokenizer given; make one with `melete train kmeans`, or set "
              "told_by none");
      tokenizer_ = open_semantic_tokenizer(semantic_from_);
      settle_identity(semantic_identity_, tokenizer_->identity(), "semantic_from");
      settle_size(model_.tokens, tokenizer_->codebook_size(), "model.tokens", "tokenizer");
      data.rates_hz.push_back(tokenizer_->rate_hz());
      data.multiple_of.push_back(tokenizer_->samples_per_token());
    }
  }

  std::string settle_on_paper() override {
    if (!features_from_.empty()) {
      settle();
      return "";
    }
    if (model_.frame_dim == 0) model_.frame_dim = 100;
    if (model_.tokens == 0 && told_by_ == "semantic") model_.tokens = 500;
    scale_ = {0, 1};
    return fmt::format("frames of {} values, {} semantic tokens", model_.frame_dim, model_.tokens);
  }

  std::unique_ptr<Task> make_task() override {
    return std::make_unique<VoiceboxTask>(model_, task_, scale_, features_, schema().json());
  }

  Feed open(const OpenRequest& request) override {
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
    if (model_.tokens > 0) batch.set("semantic", at::randint(model_.tokens, {items, frames / 2}, at::kLong));
    return batch;
  }

 protected:
  void describe_task(Schema& s) override {
    s.option("features_from", features_from_, "what turns sound into frames and back: a run of a codec");
    s.option("features_identity", features_identity_, "whose frames these are; filled in");
    s.option("frame_mean", scale_.mean, "of the frames' values; filled in");
    s.option("frame_deviation", scale_.deviation,
             "of the frames' values; 0: measured at the start, and filled in")
        .at_least(0);
    s.option("told_by", told_by_, "what tells it what to say").one_of({"semantic", "none"});
    s.option("semantic_from", semantic_from_,
             "semantic tokenizer: what `melete train kmeans` or import wrote");
    s.option("semantic_identity", semantic_identity_, "whose tokens these are; filled in");
    s.section("model", model_, "what is trained");
    s.section("task", task_, "how it is trained");
  }

 private:
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
    if (tokenizer_) batch.set("semantic", tokenizer_->tokenize(batch["wave_1"]));
  }

  // By the main rank, for all of them.
  void measure_scale(BatchSource& source, Group& group) {
    nlohmann::json measured;
    if (group.main()) {
      std::vector<at::Tensor> values;
      for (int64_t number = 0; number < kBatchesMeasured; ++number)
        values.push_back(source.batch(number)["frames"].flatten());
      const at::Tensor all = at::cat(values).to(at::kDouble);
      measured = {all.mean().item<double>(), all.std().item<double>()};
    }
    measured = nlohmann::json::parse(group.from_main(measured.dump()));
    scale_ = {measured[0], measured[1]};
    require(scale_.deviation > 0, "[features_from] all frames of the training data are the same");
  }

  std::string features_from_, features_identity_, told_by_ = "semantic", semantic_from_, semantic_identity_;
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
