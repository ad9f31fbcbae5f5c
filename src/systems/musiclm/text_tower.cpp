#include "systems/musiclm/text_tower.h"

#include <algorithm>

#include "config/schema.h"
#include "core/base/error.h"
#include "data/text_tokenizer.h"
#include "nn/draws.h"

namespace melete::musiclm {

void describe(Schema& schema, TextTowerConfig& config) {
  schema.section("transformer", config.transformer, "the tower's transformer");
  schema
      .option("vocabulary", config.vocabulary,
              "ids of the tokenizer; 49408 are CLIP's; 0 in a recipe: what it has")
      .at_least(0);
  schema.option("window", config.window, "longer texts are cut").at_least(1).unit("tokens");
}

TextInput TextInput::rows(int64_t begin, int64_t end) const {
  return {ids.slice(0, begin, end), mask.defined() ? mask.slice(0, begin, end) : mask};
}

TokenizedTexts tokenize(const TextTokenizer& tokenizer, const std::vector<std::string>& texts, int64_t window,
                        const std::vector<std::string>& names) {
  require(!texts.empty(), "[text tower] expected at least one text, got none");
  TokenizedTexts result;
  std::vector<std::vector<int64_t>> rows;
  size_t longest = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    rows.push_back(tokenizer.pieces(texts[i]));
    if (rows.back().empty())
      fail("[text tower] the text of {} has no words (`{}`); give it some or leave it out",
           names.empty() ? fmt::format("item {} of {}", i + 1, texts.size()) : names[i], texts[i]);
    if (static_cast<int64_t>(rows.back().size()) > window) {
      rows.back().resize(static_cast<size_t>(window));
      ++result.cut;
    }
    longest = std::max(longest, rows.back().size());
  }
  const auto batch = static_cast<int64_t>(rows.size()), width = static_cast<int64_t>(longest);
  result.input.ids = at::full({batch, width}, kTextPad, at::kLong);
  result.input.mask = at::zeros({batch, width}, at::kBool);
  for (int64_t i = 0; i < batch; ++i) {
    const auto& row = rows[static_cast<size_t>(i)];
    std::copy(row.begin(), row.end(), result.input.ids.data_ptr<int64_t>() + i * width);
    std::fill_n(result.input.mask.data_ptr<bool>() + i * width, row.size(), true);
  }
  return result;
}

TextTowerImpl::TextTowerImpl(const TextTowerConfig& config) : config_(config) {
  const int64_t dim = config.transformer.dim;
  tokens = register_module("tokens", torch::nn::Embedding(config.vocabulary, dim));
  positions = register_module("positions", torch::nn::Embedding(config.window, dim));
  summary = register_parameter("summary", at::randn({dim}));
  transformer = register_module("transformer", TowerTransformer(config.transformer));
  norm = register_module("norm", Norm(dim, false));
}

TowerOutput TextTowerImpl::forward(const TextInput& input, Draws* draws) {
  const int64_t batch = input.ids.size(0), length = input.ids.size(1);
  require(length <= config_.window, "[text tower] {} tokens exceed the window of {}", length, config_.window);
  const at::Tensor words = tokens(input.ids) + positions->weight.narrow(0, 0, length);
  const at::Tensor x = at::cat({summary.expand({batch, 1, -1}), words}, 1);
  TowerOutput output;
  if (input.mask.defined()) output.hidden = at::constant_pad_nd(input.mask, {1, 0}, 1).logical_not();
  TowerView view;
  view.hidden = output.hidden;
  output.layers = transformer->forward(x, view, draws);
  output.embedding = norm(output.layers.back().select(1, 0));
  return output;
}

}  // namespace melete::musiclm
