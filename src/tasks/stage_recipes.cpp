#include "tasks/stage_recipes.h"

#include <fmt/ranges.h>

#include <filesystem>

#include "core/base/error.h"
#include "generate/load_frozen.h"
#include "tasks/stage_samples.h"
#include "tasks/stage_task.h"
#include "tasks/token_shards.h"

namespace melete {

namespace {

// A size that is 0 in the settings comes from the frozen model; one that is not must agree with it.
void settle_size(int64_t& setting, int64_t found, const char* name, const std::string& of) {
  if (found == 0) return;  // that model is not at hand
  if (setting == 0) setting = found;
  require(setting == found, "[{}] expected {} as the {} has, got {}; set it to 0 to take what fits", name,
          found, of, setting);
}

void settle_identity(std::string& setting, const std::string& found, const char* what) {
  if (found.empty()) return;
  if (setting.empty()) setting = found;
  require(setting == found,
          "[{}] this run was trained with {} and now has {}; its tokens would mean something else", what,
          setting, found);
}

// What the three have in common: the frozen models, and where tokens come from.
class StageRecipe : public Recipe {
 public:
  StageRecipe(bool needs_semantic, bool needs_codec)
      : needs_semantic_(needs_semantic), needs_codec_(needs_codec) {
    data.segment_seconds = 4;
    train.ema.enabled = false;
  }

  void settle() override {
    if (needs_semantic_ && !semantic_from_.empty())
      tokenizers_.semantic = load_semantic_tokenizer(semantic_from_);
    if (needs_codec_ && !codec_from_.empty()) tokenizers_.codec = load_any_codec(codec_from_);
    if (!text_from_.empty()) tokenizers_.text = load_text_encoder(text_from_);
    TokenInfo info = TokenInfo::of(tokenizers_);
    if (is_token_folder(data_from)) {
      const TokenInfo stored = read_token_info(data_from);
      require(!needs_semantic_ || !stored.semantic_identity.empty(), "[data] {} holds no semantic tokens",
              data_from);
      require(!needs_codec_ || !stored.codec_identity.empty(), "[data] {} holds no acoustic tokens",
              data_from);
      if (tokenizers_.semantic)
        settle_identity(info.semantic_identity, stored.semantic_identity, "semantic_from");
      if (tokenizers_.codec) settle_identity(info.codec_identity, stored.codec_identity, "codec_from");
      info = stored;
    } else {
      require(!needs_semantic_ || tokenizers_.semantic,
              "[semantic_from] no semantic tokenizer given; make one with `melete train kmeans`");
      require(!needs_codec_ || tokenizers_.codec,
              "[codec_from] no codec given; train one with `melete train soundstream`");
      data.rates_hz = tokenizers_.rates_hz();
      data.multiple_of.clear();
      if (tokenizers_.semantic) data.multiple_of.push_back(tokenizers_.semantic->samples_per_token());
      if (tokenizers_.codec) data.multiple_of.push_back(tokenizers_.codec->samples_per_frame());
    }
    if (needs_semantic_) settle_identity(semantic_identity_, info.semantic_identity, "semantic_from");
    if (needs_codec_) settle_identity(codec_identity_, info.codec_identity, "codec_from");
    if (tokenizers_.text) settle_identity(text_identity_, tokenizers_.text->identity(), "text_from");
    settle_text(stage_config());
    settle_sizes(info);
  }

  std::string settle_on_paper() override {
    if (!semantic_from_.empty() || !codec_from_.empty() || !data_from.empty()) {
      settle();
      return "";
    }
    // AudioLM's own: 1,024 semantic tokens, codebooks of 1,024, 12 of them.
    TokenInfo info = given_sizes();
    if (info.semantic_tokens == 0) info.semantic_tokens = 1024;
    if (info.codebook_size == 0) info.codebook_size = 1024;
    if (info.quantizers == 0) info.quantizers = 12;
    settle_text(stage_config());
    settle_sizes(info);
    std::vector<std::string> assumed;
    if (needs_semantic_) assumed.push_back(fmt::format("{} semantic tokens", info.semantic_tokens));
    if (needs_codec_)
      assumed.push_back(fmt::format("{} codebooks of {}", info.quantizers, info.codebook_size));
    return fmt::format("{}", fmt::join(assumed, ", "));
  }

  // The SentencePiece model of a text encoder that is trained with the stage.
  std::string kept_file(const TensorMap& checkpoint, const std::string& path) override {
    SmallTextEncoderConfig text = stage_config().text;
    take_pieces(text, checkpoint, "model.text_encoder.pieces", path);
    return text.pieces;
  }
  void take_kept_file(std::string bytes) override {
    SmallTextEncoderConfig& text = stage_config().text;
    if (!std::filesystem::exists(text.sentencepiece)) text.pieces = std::move(bytes);
  }

  std::unique_ptr<BatchSource> tokens(BatchSource& audio) override {
    return std::make_unique<TokenSource>(audio, tokenizers_);
  }

  std::optional<TokenSources> token_sources(uint64_t seed, int rank, int ranks) override {
    if (!is_token_folder(data_from)) return {};
    const TokenInfo info = read_token_info(data_from);
    TokenSplit parts;
    if (valid_from.empty()) {
      parts = split_tokens(read_token_items(data_from), data.valid_fraction,
                           static_cast<uint64_t>(data.split_seed));
    } else {
      require(is_token_folder(valid_from), "[valid_from] expected a folder of tokens like data_from, got {}",
              valid_from);
      settle_identity(semantic_identity_, read_token_info(valid_from).semantic_identity, "valid_from");
      parts = {read_token_items(data_from), read_token_items(valid_from)};
    }
    const auto source = [&](std::vector<TokenItem> items, int of_rank, int of_ranks) {
      auto batches =
          std::make_unique<TokenBatches>(std::move(items), info, data.segment_seconds, batch_size, seed,
                                         of_rank, of_ranks, train.dist.split_batches && of_ranks > 1);
      batches->set_text_encoder(tokenizers_.text);
      return batches;
    };
    TokenSources result;
    result.description = {fmt::format("training: tokens of {} recordings", parts.train.size()),
                          fmt::format("validation: tokens of {} recordings", parts.valid.size())};
    result.training = source(std::move(parts.train), rank, ranks);
    if (!parts.valid.empty()) result.validation = source(std::move(parts.valid), 0, 1);
    return result;
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
  virtual void settle_sizes(const TokenInfo& info) = 0;
  virtual TokenInfo given_sizes() const = 0;  // what the settings say; 0: nothing

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
};

class SemanticRecipe : public StageRecipe {
 public:
  SemanticRecipe() : StageRecipe(true, false) { model_.semantic_tokens = 0; }
  std::string name() const override { return "semantic"; }
  std::unique_ptr<Task> make_task() override {
    auto task = std::make_unique<SemanticTask>(model_, task_, schema().json());
    task->set_sampler(make_sampler(task->transformer(), sample_seed()));
    return task;
  }

 protected:
  StageConfig& stage_config() override { return model_.stage; }
  void describe_model(Schema& s) override { s.section("model", model_, "what is trained"); }
  void settle_sizes(const TokenInfo& info) override {
    settle_size(model_.semantic_tokens, info.semantic_tokens, "model.semantic_tokens", "tokenizer");
  }
  TokenInfo given_sizes() const override {
    TokenInfo info;
    info.semantic_tokens = model_.semantic_tokens;
    return info;
  }

 private:
  SemanticConfig model_;
};

class CoarseRecipe : public StageRecipe {
 public:
  CoarseRecipe() : StageRecipe(true, true) { model_.semantic_tokens = model_.codebook_size = 0; }
  std::string name() const override { return "coarse"; }
  std::unique_ptr<Task> make_task() override {
    auto task = std::make_unique<CoarseTask>(model_, task_, schema().json());
    if (tokenizers_.codec)
      task->set_sampler(make_sampler(task->transformer(), tokenizers_.codec, sample_seed()));
    return task;
  }

 protected:
  StageConfig& stage_config() override { return model_.stage; }
  void describe_model(Schema& s) override { s.section("model", model_, "what is trained"); }
  void settle_sizes(const TokenInfo& info) override {
    settle_size(model_.semantic_tokens, info.semantic_tokens, "model.semantic_tokens", "tokenizer");
    settle_size(model_.codebook_size, info.codebook_size, "model.codebook_size", "codec");
    require(model_.quantizers <= info.quantizers, "[model.quantizers] the codec has {} quantizers, got {}",
            info.quantizers, model_.quantizers);
  }
  TokenInfo given_sizes() const override {
    TokenInfo info;
    info.semantic_tokens = model_.semantic_tokens;
    info.codebook_size = model_.codebook_size;
    if (model_.quantizers > 12) info.quantizers = model_.quantizers;
    return info;
  }

 private:
  CoarseConfig model_;
};

class FineRecipe : public StageRecipe {
 public:
  FineRecipe() : StageRecipe(false, true) { model_.codebook_size = model_.fine_quantizers = 0; }
  std::string name() const override { return "fine"; }
  std::unique_ptr<Task> make_task() override {
    auto task = std::make_unique<FineTask>(model_, task_, schema().json());
    if (tokenizers_.codec)
      task->set_sampler(make_sampler(task->transformer(), tokenizers_.codec, sample_seed()));
    return task;
  }

 protected:
  StageConfig& stage_config() override { return model_.stage; }
  void describe_model(Schema& s) override { s.section("model", model_, "what is trained"); }
  void settle_sizes(const TokenInfo& info) override {
    settle_size(model_.codebook_size, info.codebook_size, "model.codebook_size", "codec");
    require(model_.coarse_quantizers < info.quantizers,
            "[model.coarse_quantizers] the codec has {} quantizers, so at most {} can be coarse, got {}",
            info.quantizers, info.quantizers - 1, model_.coarse_quantizers);
    settle_size(model_.fine_quantizers, info.quantizers - model_.coarse_quantizers, "model.fine_quantizers",
                "codec");
  }
  TokenInfo given_sizes() const override {
    TokenInfo info;
    info.codebook_size = model_.codebook_size;
    if (model_.fine_quantizers > 0) info.quantizers = model_.coarse_quantizers + model_.fine_quantizers;
    return info;
  }

 private:
  FineConfig model_;
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
