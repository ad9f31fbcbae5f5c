#include "systems/audiolm/recipe_stage.h"

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "roles/open.h"
#include "train/feed.h"

namespace melete {

namespace {

// AudioLM's own: 1,024 semantic tokens, codebooks of 1,024, 12 of them.
constexpr TokenSizes kOnPaper = {1024, 1024, 12};

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

}  // namespace

void forget_sizes(SemanticConfig& model) {
  model.semantic_tokens = 0;
}

void forget_sizes(CoarseConfig& model) {
  model.semantic_tokens = model.codebook_size = 0;
}

void forget_sizes(FineConfig& model) {
  model.codebook_size = model.fine_quantizers = 0;
}

TokenSizes given_sizes(const SemanticConfig& model) {
  return {model.semantic_tokens, 0, 0};
}

TokenSizes given_sizes(const CoarseConfig& model) {
  return {model.semantic_tokens, model.codebook_size,
          model.quantizers > kOnPaper.quantizers ? model.quantizers : 0};
}

TokenSizes given_sizes(const FineConfig& model) {
  return {0, model.codebook_size,
          model.fine_quantizers > 0 ? model.coarse_quantizers + model.fine_quantizers : 0};
}

void settle_sizes(SemanticConfig& model, const TokenSizes& sizes) {
  settle_size(model.semantic_tokens, sizes.semantic_tokens, "model.semantic_tokens", "tokenizer");
}

void settle_sizes(CoarseConfig& model, const TokenSizes& sizes) {
  settle_size(model.semantic_tokens, sizes.semantic_tokens, "model.semantic_tokens", "tokenizer");
  settle_size(model.codebook_size, sizes.codebook_size, "model.codebook_size", "codec");
  require(model.quantizers <= sizes.quantizers, "[model.quantizers] the codec has {} quantizers, got {}",
          sizes.quantizers, model.quantizers);
}

void settle_sizes(FineConfig& model, const TokenSizes& sizes) {
  settle_size(model.codebook_size, sizes.codebook_size, "model.codebook_size", "codec");
  require(model.coarse_quantizers < sizes.quantizers,
          "[model.coarse_quantizers] the codec has {} quantizers, so at most {} can be coarse, got {}",
          sizes.quantizers, sizes.quantizers - 1, model.coarse_quantizers);
  settle_size(model.fine_quantizers, sizes.quantizers - model.coarse_quantizers, "model.fine_quantizers",
              "codec");
}

StageRecipe::StageRecipe(const std::string& stage)
    : stage_(stage), needs_semantic_(stage != "fine"), needs_codec_(stage != "semantic") {
  data.segment_seconds = 4;
  train.ema.enabled = false;
}

bool StageRecipe::from_tokens() const {
  return is_token_folder(data_from);
}

void StageRecipe::settle() {
  if (needs_semantic_ && !semantic_from_.empty())
    tokenizers_.semantic = open_semantic_tokenizer(semantic_from_, frozen_device);
  if (needs_codec_ && !codec_from_.empty())
    tokenizers_.codec = open_codec(codec_from_, Weights::best, frozen_device);
  open_condition();
  TokenColumns columns = tokenizers_.columns();
  if (from_tokens()) {
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
  settle_condition(columns);
  sizes_ = sizes_of(columns);
  settle_sizes_of_model(sizes_);
}

std::string StageRecipe::settle_on_paper() {
  if (!semantic_from_.empty() || !codec_from_.empty() || !data_from.empty() || condition_given()) {
    settle();
    return "";
  }
  sizes_ = given_sizes_of_model();
  if (sizes_.semantic_tokens == 0) sizes_.semantic_tokens = kOnPaper.semantic_tokens;
  if (sizes_.codebook_size == 0) sizes_.codebook_size = kOnPaper.codebook_size;
  if (sizes_.quantizers == 0) sizes_.quantizers = kOnPaper.quantizers;
  settle_condition({});
  settle_sizes_of_model(sizes_);
  std::vector<std::string> assumed;
  if (needs_semantic_) assumed.push_back(fmt::format("{} semantic tokens", sizes_.semantic_tokens));
  if (needs_codec_)
    assumed.push_back(fmt::format("{} codebooks of {}", sizes_.quantizers, sizes_.codebook_size));
  return fmt::format("{}", fmt::join(assumed, ", "));
}

Feed StageRecipe::open(const OpenRequest& request) {
  if (!from_tokens()) {
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

Batch StageRecipe::example(int64_t items) {
  // As long as data.segment_seconds is at 50 tokens and frames a second, where nobody says otherwise.
  const double seconds = data.segment_seconds > 0 ? data.segment_seconds : 4;
  const auto places = [&](double per_second) {
    return std::max<int64_t>(2, static_cast<int64_t>(seconds * (per_second > 0 ? per_second : 50)));
  };
  Batch batch;
  if (needs_semantic_)
    batch.set("semantic",
              at::randint(sizes_.semantic_tokens, {items, places(rate_of("semantic"))}, at::kLong));
  if (needs_codec_)
    batch.set("acoustic", at::randint(sizes_.codebook_size,
                                      {items, places(rate_of("acoustic")), sizes_.quantizers}, at::kLong));
  add_condition(batch, items);
  return batch;
}

std::vector<std::string> StageRecipe::needed_columns() const {
  std::vector<std::string> names = condition_columns();
  if (needs_semantic_) names.push_back("semantic");
  if (needs_codec_) names.push_back("acoustic");
  return names;
}

void StageRecipe::check_columns(const TokenColumns& columns, const std::string& folder) const {
  for (const TokenColumn& mine : tokenizers_.columns().list) {
    const TokenColumn* found = columns.find(mine.name);
    if (mine.name == "text_features" && found == nullptr) continue;  // made on the way
    require(found != nullptr && found->identity == mine.identity,
            "[data] the {} tokens of {} were made by {}, and the model that was given is {}; they would mean "
            "something else",
            mine.name, folder, found ? found->identity : "nobody", mine.identity);
  }
  for (const std::string& name : needed_columns()) columns.require_column(name, folder);
}

double StageRecipe::rate_of(const char* column) const {
  const TokenColumns columns = from_tokens() ? read_token_columns(data_from) : tokenizers_.columns();
  const TokenColumn* found = columns.find(column);
  return found ? found->per_second : 0;
}

void StageRecipe::describe_task(Schema& s) {
  if (needs_semantic_) {
    s.option("semantic_from", semantic_from_,
             "semantic tokenizer: what `melete train kmeans` or import wrote");
    s.option("semantic_identity", semantic_identity_, "whose tokens these are; filled in");
  }
  if (needs_codec_) {
    s.option("codec_from", codec_from_, "codec: a run, a checkpoint, or an imported EnCodec");
    s.option("codec_identity", codec_identity_, "whose codes these are; filled in");
  }
  describe_condition(s);
  s.section("task", task_, "how it is trained");
}

}  // namespace melete
