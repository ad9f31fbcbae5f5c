// Recipes of MusicLM's three stages.
#include "core/base/error.h"
#include "roles/open.h"
#include "roles/tokenizers.h"
#include "systems/musiclm/system.h"
#include "systems/musiclm/task_stage.h"
#include "train/feed.h"

namespace melete {

namespace {

using musiclm::EmbedQuantizerConfig;

// What the frozen models have; 0: not at hand.
struct MusicSizes {
  int64_t semantic_tokens = 0, codebook_size = 0, quantizers = 0;
};

void forget_sizes(SemanticConfig& model) {
  model.semantic_tokens = 0;
}
void forget_sizes(CoarseConfig& model) {
  model.semantic_tokens = model.codebook_size = 0;
}
void forget_sizes(FineConfig& model) {
  model.codebook_size = model.fine_quantizers = 0;
}

void settle_sizes_of(SemanticConfig& model, const MusicSizes& sizes) {
  settle_size(model.semantic_tokens, sizes.semantic_tokens, "model.semantic_tokens", "tokenizer");
}
void settle_sizes_of(CoarseConfig& model, const MusicSizes& sizes) {
  settle_size(model.semantic_tokens, sizes.semantic_tokens, "model.semantic_tokens", "tokenizer");
  settle_size(model.codebook_size, sizes.codebook_size, "model.codebook_size", "codec");
  require(model.quantizers <= sizes.quantizers, "[model.quantizers] the codec has {} quantizers, got {}",
          sizes.quantizers, model.quantizers);
}
void settle_sizes_of(FineConfig& model, const MusicSizes& sizes) {
  settle_size(model.codebook_size, sizes.codebook_size, "model.codebook_size", "codec");
  require(model.coarse_quantizers < sizes.quantizers,
          "[model.coarse_quantizers] the codec has {} quantizers, so at most {} can be coarse, got {}",
          sizes.quantizers, sizes.quantizers - 1, model.coarse_quantizers);
  settle_size(model.fine_quantizers, sizes.quantizers - model.coarse_quantizers, "model.fine_quantizers",
              "codec");
}

MusicSizes sizes_on_paper(const SemanticConfig& model) {
  return {model.semantic_tokens > 0 ? model.semantic_tokens : 1024, 1024, 12};
}
MusicSizes sizes_on_paper(const CoarseConfig& model) {
  return {model.semantic_tokens > 0 ? model.semantic_tokens : 1024,
          model.codebook_size > 0 ? model.codebook_size : 1024, std::max<int64_t>(12, model.quantizers)};
}
MusicSizes sizes_on_paper(const FineConfig& model) {
  const int64_t fine = model.fine_quantizers > 0 ? model.fine_quantizers : 12 - model.coarse_quantizers;
  return {1024, model.codebook_size > 0 ? model.codebook_size : 1024, model.coarse_quantizers + fine};
}

template <class StageTaskOf, class Config>
class MusicStageRecipe : public RecordingsRecipe {
 public:
  MusicStageRecipe(std::string stage, bool needs_semantic, bool needs_codec)
      : stage_(std::move(stage)), needs_semantic_(needs_semantic), needs_codec_(needs_codec) {
    data.segment_seconds = 4;
    train.ema.enabled = false;
    forget_sizes(model_);
    model_.stage.transformer.condition = "cross";
    model_.stage.text_dim = 512;
    model_.stage.condition_drop = 0.1;
    condition_.dim = 0;
  }

  std::string name() const override { return music_stage_task(stage_); }

  void settle() override {
    require(!is_token_folder(data_from),
            "[data] {} is a folder of tokens, which have no joint embeddings; give the recordings themselves",
            data_from);
    require(!condition_from_.empty(),
            "[condition_from] no joint embedding given; train one with `melete train mulan`");
    require(!needs_semantic_ || !semantic_from_.empty(),
            "[semantic_from] no semantic tokenizer given; make one with `melete train kmeans`");
    require(!needs_codec_ || !codec_from_.empty(),
            "[codec_from] no codec given; train one with `melete train soundstream`");
    joint_ = open_joint_embedding(condition_from_);
    settle_identity(condition_identity_, joint_->identity(), "condition_from");
    settle_size(condition_.dim, joint_->dim(), "condition.dim", "joint embedding");
    MusicSizes sizes;
    if (needs_semantic_) {
      tokenizers_.semantic = open_semantic_tokenizer(semantic_from_);
      settle_identity(semantic_identity_, tokenizers_.semantic->identity(), "semantic_from");
      sizes.semantic_tokens = tokenizers_.semantic->codebook_size();
    }
    if (needs_codec_) {
      tokenizers_.codec = open_codec(codec_from_);
      settle_identity(codec_identity_, tokenizers_.codec->identity(), "codec_from");
      sizes.codebook_size = tokenizers_.codec->codebook_size();
      sizes.quantizers = tokenizers_.codec->quantizers();
    }
    data.rates_hz = tokenizers_.rates_hz();
    data.multiple_of = tokenizers_.multiples();
    settle_sizes_of(model_, sizes);
    settle_condition();
  }

  std::string settle_on_paper() override {
    if (!condition_from_.empty()) {
      settle();
      return "";
    }
    const MusicSizes sizes = sizes_on_paper(model_);
    settle_sizes_of(model_, sizes);
    if (condition_.dim == 0) condition_.dim = 128;
    settle_condition();
    return fmt::format("{} semantic tokens, {} codebooks of {}, a joint embedding of {}",
                       sizes.semantic_tokens, sizes.quantizers, sizes.codebook_size, condition_.dim);
  }

  std::unique_ptr<Task> make_task() override {
    return std::make_unique<musiclm::MusicStageTask<StageTaskOf>>(stage_, model_, condition_, task_,
                                                                  schema().json());
  }

  Feed open(const OpenRequest& request) override {
    const Tokenizers tokenizers = tokenizers_;
    const std::shared_ptr<const JointEmbedding> joint = joint_;
    const int64_t rate_hz = data.rates_hz.front();
    const int64_t shortest =
        (joint->shortest_samples() * rate_hz + joint->rate_hz() - 1) / joint->rate_hz() + 1;
    return mapped(open_recordings(*this, request), [tokenizers, joint, rate_hz, shortest](Batch& batch) {
      tokenizers.add_columns(batch);
      // Sound that is too short to be heard counts with the silence after it.
      at::Tensor wave = batch["wave"];
      if (wave.size(1) < shortest) wave = at::constant_pad_nd(wave, {0, shortest - wave.size(1)});
      batch.set("joint", joint->embed_audio(wave, rate_hz, batch.lengths("wave").clamp_min(shortest)));
    });
  }

  Batch example(int64_t items) override {
    const MusicSizes sizes = sizes_on_paper(model_);
    const double seconds = data.segment_seconds > 0 ? data.segment_seconds : 4;
    const int64_t places = std::max<int64_t>(2, static_cast<int64_t>(seconds * 50));
    Batch batch;
    if (needs_semantic_)
      batch.set("semantic", at::randint(sizes.semantic_tokens, {items, places}, at::kLong));
    if (needs_codec_)
      batch.set("acoustic", at::randint(sizes.codebook_size, {items, places, sizes.quantizers}, at::kLong));
    const at::Tensor joint = at::randn({items, condition_.dim});
    batch.set("joint", joint / joint.norm(2, {1}, true));
    return batch;
  }

 protected:
  void describe_task(Schema& s) override {
    if (needs_semantic_) {
      s.option("semantic_from", semantic_from_,
               "semantic tokenizer: what `melete train kmeans` or import wrote");
      s.option("semantic_identity", semantic_identity_, "whose tokens these are; filled in");
    }
    if (needs_codec_) {
      s.option("codec_from", codec_from_, "codec: a run, a checkpoint, or an imported EnCodec");
      s.option("codec_identity", codec_identity_, "whose codes these are; filled in");
    }
    s.option("condition_from", condition_from_, "joint embedding: a run or checkpoint of mulan");
    s.option("condition_identity", condition_identity_, "whose embeddings these are; filled in");
    s.section("model", model_, "what is trained");
    s.section("condition", condition_, "what it is told; dim, stages and stage_dims are filled in");
    s.section("task", task_, "how it is trained");
  }

 private:
  void settle_condition() {
    StageConfig& stage = model_.stage;
    require(stage.conditioned() && !stage.text.enabled(),
            "[model.condition] MusicLM's stages are conditioned on the joint embedding alone; set cross or "
            "prefix, and "
            "no text encoder");
    condition_.stages = {stage_};
    condition_.stage_dims = {stage.text_dim};
  }

  std::string stage_;
  bool needs_semantic_, needs_codec_;
  std::string semantic_from_, semantic_identity_, codec_from_, codec_identity_, condition_from_,
      condition_identity_;
  Config model_;
  EmbedQuantizerConfig condition_;
  StageTaskConfig task_;
  Tokenizers tokenizers_;
  std::shared_ptr<const JointEmbedding> joint_;
};

}  // namespace

std::string music_stage_task(const std::string& stage) {
  return "musiclm-" + stage;
}

std::unique_ptr<Recipe> make_music_stage_recipe(const std::string& stage) {
  if (stage == "semantic")
    return std::make_unique<MusicStageRecipe<SemanticTask, SemanticConfig>>(stage, true, false);
  if (stage == "coarse")
    return std::make_unique<MusicStageRecipe<CoarseTask, CoarseConfig>>(stage, true, true);
  require(stage == "fine", "[musiclm] expected a stage semantic, coarse or fine, got {}", stage);
  return std::make_unique<MusicStageRecipe<FineTask, FineConfig>>(stage, false, true);
}

}  // namespace melete
