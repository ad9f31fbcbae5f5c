// Recipes of MusicLM's three stages.
#include <type_traits>

#include "core/base/error.h"
#include "roles/open.h"
#include "roles/tokenizers.h"
#include "systems/audiolm/samples.h"
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
    if (!condition_from_.empty()) tokenizers_.joint = open_joint_embedding(condition_from_, frozen_device);
    if (needs_semantic_ && !semantic_from_.empty())
      tokenizers_.semantic = open_semantic_tokenizer(semantic_from_, frozen_device);
    if (needs_codec_ && !codec_from_.empty())
      tokenizers_.codec = open_codec(codec_from_, Weights::best, frozen_device);
    TokenColumns columns = tokenizers_.columns();
    if (is_token_folder(data_from)) {
      columns = read_token_columns(data_from);
      check_columns(columns, data_from);
    } else {
      require(tokenizers_.joint != nullptr,
              "[condition_from] no joint embedding given; train one with `melete train mulan`");
      require(!needs_semantic_ || tokenizers_.semantic,
              "[semantic_from] no semantic tokenizer given; make one with `melete train kmeans`");
      require(!needs_codec_ || tokenizers_.codec,
              "[codec_from] no codec given; train one with `melete train soundstream`");
      data.rates_hz = tokenizers_.rates_hz();
      data.multiple_of = tokenizers_.multiples();
    }
    const TokenColumn& joint = columns.require_column("joint", data_from);
    settle_identity(condition_identity_, joint.identity, "condition_from");
    settle_size(condition_.dim, joint.width, "condition.dim", "joint embedding");
    MusicSizes sizes;
    if (needs_semantic_) {
      const TokenColumn& semantic = columns.require_column("semantic", data_from);
      settle_identity(semantic_identity_, semantic.identity, "semantic_from");
      sizes.semantic_tokens = semantic.values;
    }
    if (needs_codec_) {
      const TokenColumn& acoustic = columns.require_column("acoustic", data_from);
      settle_identity(codec_identity_, acoustic.identity, "codec_from");
      sizes.codebook_size = acoustic.values;
      sizes.quantizers = acoustic.width;
    }
    settle_sizes_of(model_, sizes);
    settle_condition();
  }

  std::string settle_on_paper() override {
    if (!condition_from_.empty() || !data_from.empty()) {
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
    auto task = std::make_unique<musiclm::MusicStageTask<StageTaskOf>>(stage_, model_, condition_, task_,
                                                                       schema().json());
    set_sampler(*task);
    return task;
  }

  Feed open(const OpenRequest& request) override {
    if (is_token_folder(data_from))
      return open_tokens(
          *this,
          [this](const TokenColumns& columns, const std::string& folder) { check_columns(columns, folder); },
          request);
    const Tokenizers tokenizers = tokenizers_;
    return mapped(open_recordings(*this, request),
                  [tokenizers](Batch& batch) { tokenizers.add_columns(batch); });
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
  // A folder of tokens has what is needed, made by the models that were given.
  void check_columns(const TokenColumns& columns, const std::string& folder) const {
    for (const TokenColumn& mine : tokenizers_.columns().list) {
      const TokenColumn& found = columns.require_column(mine.name, folder);
      require(found.identity == mine.identity,
              "[data] the {} column of {} was made by {}, and the model that was given is {}; it would mean "
              "something else",
              mine.name, folder, found.identity, mine.identity);
    }
    columns.require_column("joint", folder);
    if (needs_semantic_) columns.require_column("semantic", folder);
    if (needs_codec_) columns.require_column("acoustic", folder);
  }

  // Sound needs the codec itself: tokens alone make no samples.
  void set_sampler(musiclm::MusicStageTask<StageTaskOf>& task) {
    const auto seed = static_cast<uint64_t>(train.seed);
    if constexpr (std::is_same_v<StageTaskOf, SemanticTask>)
      task.set_sampler(make_sampler(task.transformer(), seed));
    else if (tokenizers_.codec)
      task.set_sampler(make_sampler(task.transformer(), tokenizers_.codec, seed));
  }

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
