// Recipes of AudioLM's three stages.
#include <fmt/ranges.h>

#include <filesystem>

#include "core/base/error.h"
#include "roles/open.h"
#include "systems/audiolm/samples.h"
#include "systems/audiolm/system.h"
#include "systems/audiolm/task.h"
#include "train/feed.h"

namespace melete {

namespace {

// How many different tokens there are.
struct TokenSizes {
  int64_t semantic_tokens = 0, codebook_size = 0, quantizers = 0;  // 0: not known
};

TokenSizes sizes_of(const TokenColumns& columns) {
  TokenSizes sizes;
  if (const TokenColumn* semantic = columns.find("semantic")) sizes.semantic_tokens = semantic->values;
  if (const TokenColumn* acoustic = columns.find("acoustic")) {
    sizes.codebook_size = acoustic->values;
    sizes.quantizers = acoustic->width;
  }
  return sizes;
}

void settle_column(std::string& setting, const TokenColumns& columns, const char* column, const char* what) {
  if (const TokenColumn* found = columns.find(column)) settle_identity(setting, found->identity, what);
}

// What the three have in common: the frozen models, and where tokens come from.
class StageRecipe : public RecordingsRecipe {
 public:
  StageRecipe(bool needs_semantic, bool needs_codec)
      : needs_semantic_(needs_semantic), needs_codec_(needs_codec) {
    data.segment_seconds = 4;
    train.ema.enabled = false;
  }

  void settle() override {
    if (needs_semantic_ && !semantic_from_.empty())
      tokenizers_.semantic = open_semantic_tokenizer(semantic_from_, frozen_device);
    if (needs_codec_ && !codec_from_.empty())
      tokenizers_.codec = open_codec(codec_from_, Weights::best, frozen_device);
    if (!text_from_.empty()) tokenizers_.text = open_text_encoder(text_from_, frozen_device);
    TokenColumns columns = tokenizers_.columns();
    if (is_token_folder(data_from)) {
      columns = read_token_columns(data_from);
      check_columns(columns, data_from);
    } else {
      require(!needs_semantic_ || tokenizers_.semantic,
              "[semantic_from] no semantic tokenizer given; make one with `melete train kmeans`");
      require(!needs_codec_ || tokenizers_.codec,
              "[codec_from] no codec given; train one with `melete train soundstream`");
      data.rates_hz = tokenizers_.rates_hz();
      data.multiple_of = tokenizers_.multiples();
    }
    if (needs_semantic_) settle_column(semantic_identity_, columns, "semantic", "semantic_from");
    if (needs_codec_) settle_column(codec_identity_, columns, "acoustic", "codec_from");
    if (tokenizers_.text) settle_identity(text_identity_, tokenizers_.text->identity(), "text_from");
    settle_text(stage_config());
    sizes_ = sizes_of(columns);
    settle_sizes(sizes_);
  }

  std::string settle_on_paper() override {
    if (!semantic_from_.empty() || !codec_from_.empty() || !data_from.empty()) {
      settle();
      return "";
    }
    // AudioLM's own: 1,024 semantic tokens, codebooks of 1,024, 12 of them.
    TokenSizes info = given_sizes();
    if (info.semantic_tokens == 0) info.semantic_tokens = 1024;
    if (info.codebook_size == 0) info.codebook_size = 1024;
    if (info.quantizers == 0) info.quantizers = 12;
    settle_text(stage_config());
    settle_sizes(info);
    sizes_ = info;
    std::vector<std::string> assumed;
    if (needs_semantic_) assumed.push_back(fmt::format("{} semantic tokens", info.semantic_tokens));
    if (needs_codec_)
      assumed.push_back(fmt::format("{} codebooks of {}", info.quantizers, info.codebook_size));
    return fmt::format("{}", fmt::join(assumed, ", "));
  }

  Feed open(const OpenRequest& request) override {
    if (!is_token_folder(data_from)) {
      const Tokenizers tokenizers = tokenizers_;
      return mapped(open_recordings(*this, request),
                    [tokenizers](Batch& batch) { tokenizers.add_columns(batch); });
    }
    Feed feed = open_tokens(
        *this,
        [this](const TokenColumns& columns, const std::string& folder) { check_columns(columns, folder); },
        request);
    if (!tokenizers_.text) return feed;
    const Tokenizers text{nullptr, nullptr, tokenizers_.text, nullptr};
    return mapped(std::move(feed), [text](Batch& batch) {
      if (!batch.has("text_features")) text.add_columns(batch);
    });
  }

  Batch example(int64_t items) override {
    // As long as data.segment_seconds is at 50 tokens and frames a second, where nobody says otherwise.
    const double seconds = data.segment_seconds > 0 ? data.segment_seconds : 4;
    const auto places = [&](double per_second) {
      return std::max<int64_t>(2, static_cast<int64_t>(seconds * (per_second > 0 ? per_second : 50)));
    };
    const TokenSizes& sizes = sizes_;
    Batch batch;
    if (needs_semantic_)
      batch.set("semantic",
                at::randint(sizes.semantic_tokens, {items, places(rate_of("semantic"))}, at::kLong));
    if (needs_codec_)
      batch.set("acoustic", at::randint(sizes.codebook_size,
                                        {items, places(rate_of("acoustic")), sizes.quantizers}, at::kLong));
    if (stage_config().conditioned() && !stage_config().text.enabled())
      batch.set("text_features", at::randn({items, 8, stage_config().text_dim}));
    batch.set_words("text", std::vector<std::string>(static_cast<size_t>(items), "a few words"));
    return batch;
  }

 protected:
  // Text comes through a frozen encoder, or through one that is trained with the model.
  void settle_text(StageConfig& stage) {
    const bool given = tokenizers_.text || stage.text.enabled();
    require(stage.conditioned() || !given,
            "[model.condition] a text encoder was given, but the condition is none; try cross");
    if (!stage.conditioned()) return;
    if (tokenizers_.text) {
      require(!stage.text.enabled(),
              "[model.text.tokenizer] text_from is a text encoder already; leave one of them out");
      stage.text_dim = tokenizers_.text->dim();
      return;
    }
    require(!stage.unused_text_projection,
            "[text_from] this model comes from audiolm-pytorch and is conditioned on text; give the text "
            "encoder that it was trained with");
    if (!stage.text.enabled()) stage.text.tokenizer = "bytes";
    stage.text_dim = stage.text.dim;
    settle_identity(text_identity_, make_text_tokenizer(stage.text)->identity(), "model.text");
  }

  virtual StageConfig& stage_config() = 0;
  virtual void settle_sizes(const TokenSizes& info) = 0;
  virtual TokenSizes given_sizes() const = 0;  // what the settings say; 0: nothing

  // A folder of tokens has what is needed, and it was made by the models that were given.
  void check_columns(const TokenColumns& columns, const std::string& folder) const {
    for (const TokenColumn& mine : tokenizers_.columns().list) {
      const TokenColumn* found = columns.find(mine.name);
      if (mine.name == "text_features" && found == nullptr) continue;  // made on the way
      require(found != nullptr && found->identity == mine.identity,
              "[data] the {} tokens of {} were made by {}, and the model that was given is {}; its tokens "
              "would mean "
              "something else",
              mine.name, folder, found ? found->identity : "nobody", mine.identity);
    }
    if (needs_semantic_) columns.require_column("semantic", folder);
    if (needs_codec_) columns.require_column("acoustic", folder);
  }

  double rate_of(const char* column) const {
    const TokenColumns columns =
        is_token_folder(data_from) ? read_token_columns(data_from) : tokenizers_.columns();
    const TokenColumn* found = columns.find(column);
    return found ? found->per_second : 0;
  }

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
    s.option("text_from", text_from_,
             "frozen text encoder; a model that is conditioned on text and has none trains its own");
    s.option("text_identity", text_identity_, "whose embeddings or text tokens these are; filled in");
    describe_model(s);
    s.section("task", task_, "how it is trained");
  }
  virtual void describe_model(Schema& s) = 0;

  uint64_t sample_seed() const { return static_cast<uint64_t>(train.seed); }

  bool needs_semantic_, needs_codec_;
  std::string semantic_from_, semantic_identity_, codec_from_, codec_identity_, text_from_, text_identity_;
  StageTaskConfig task_;
  Tokenizers tokenizers_;
  TokenSizes sizes_;  // as they were settled
};

// What the three have in common once their task and the settings of their model are known.
template <class StageTask, class Config>
class RecipeOf : public StageRecipe {
 public:
  using StageRecipe::StageRecipe;

  std::unique_ptr<Task> make_task() override {
    auto task = std::make_unique<StageTask>(model_, task_, schema().json());
    if constexpr (std::is_same_v<StageTask, SemanticTask>)
      task->set_sampler(make_sampler(task->transformer(), sample_seed()));
    else if (tokenizers_.codec)
      task->set_sampler(make_sampler(task->transformer(), tokenizers_.codec, sample_seed()));
    return task;
  }

 protected:
  StageConfig& stage_config() override { return model_.stage; }
  void describe_model(Schema& s) override { s.section("model", model_, "what is trained"); }

  Config model_;
};

class SemanticRecipe : public RecipeOf<SemanticTask, SemanticConfig> {
 public:
  SemanticRecipe() : RecipeOf(true, false) { model_.semantic_tokens = 0; }
  std::string name() const override { return "semantic"; }

 protected:
  void settle_sizes(const TokenSizes& info) override {
    settle_size(model_.semantic_tokens, info.semantic_tokens, "model.semantic_tokens", "tokenizer");
  }
  TokenSizes given_sizes() const override {
    TokenSizes info;
    info.semantic_tokens = model_.semantic_tokens;
    return info;
  }
};

class CoarseRecipe : public RecipeOf<CoarseTask, CoarseConfig> {
 public:
  CoarseRecipe() : RecipeOf(true, true) { model_.semantic_tokens = model_.codebook_size = 0; }
  std::string name() const override { return "coarse"; }

 protected:
  void settle_sizes(const TokenSizes& info) override {
    settle_size(model_.semantic_tokens, info.semantic_tokens, "model.semantic_tokens", "tokenizer");
    settle_size(model_.codebook_size, info.codebook_size, "model.codebook_size", "codec");
    require(model_.quantizers <= info.quantizers, "[model.quantizers] the codec has {} quantizers, got {}",
            info.quantizers, model_.quantizers);
  }
  TokenSizes given_sizes() const override {
    TokenSizes info;
    info.semantic_tokens = model_.semantic_tokens;
    info.codebook_size = model_.codebook_size;
    if (model_.quantizers > 12) info.quantizers = model_.quantizers;
    return info;
  }
};

class FineRecipe : public RecipeOf<FineTask, FineConfig> {
 public:
  FineRecipe() : RecipeOf(false, true) { model_.codebook_size = model_.fine_quantizers = 0; }
  std::string name() const override { return "fine"; }

 protected:
  void settle_sizes(const TokenSizes& info) override {
    settle_size(model_.codebook_size, info.codebook_size, "model.codebook_size", "codec");
    require(model_.coarse_quantizers < info.quantizers,
            "[model.coarse_quantizers] the codec has {} quantizers, so at most {} can be coarse, got {}",
            info.quantizers, info.quantizers - 1, model_.coarse_quantizers);
    settle_size(model_.fine_quantizers, info.quantizers - model_.coarse_quantizers, "model.fine_quantizers",
                "codec");
  }
  TokenSizes given_sizes() const override {
    TokenSizes info;
    info.codebook_size = model_.codebook_size;
    if (model_.fine_quantizers > 0) info.quantizers = model_.coarse_quantizers + model_.fine_quantizers;
    return info;
  }
};

}  // namespace

std::unique_ptr<Recipe> make_semantic_recipe() {
  return std::make_unique<SemanticRecipe>();
}

std::unique_ptr<Recipe> make_coarse_recipe() {
  return std::make_unique<CoarseRecipe>();
}

std::unique_ptr<Recipe> make_fine_recipe() {
  return std::make_unique<FineRecipe>();
}

}  // namespace melete
