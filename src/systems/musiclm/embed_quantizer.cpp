#include "systems/musiclm/embed_quantizer.h"

#include <fmt/ranges.h>

#include "config/schema.h"
#include "core/base/error.h"

namespace melete::musiclm {

namespace {

QuantizerConfig quantizer_config(const EmbedQuantizerConfig& config) {
  QuantizerConfig result;
  result.quantizers = config.quantizers;
  result.codebook_size = config.codebook_size;
  result.decay = config.decay;
  result.commitment_weight = 0;  // only the codebooks move, towards the embeddings
  result.dropout = false;
  result.kmeans_in_eval = config.kmeans_in_eval;
  return result;
}

}  // namespace

void describe(Schema& schema, EmbedQuantizerConfig& config) {
  schema.option("dim", config.dim, "of the joint space; 0 in a recipe: what the embedding has").at_least(0);
  schema.option("quantizers", config.quantizers, "codes of a piece").at_least(1);
  schema.option("codebook_size", config.codebook_size, "codes of a quantizer").at_least(2);
  schema.option("decay", config.decay, "of the moving averages behind the codebooks").at_least(0).at_most(1);
  schema.option("stages", config.stages, "names of the stages that are conditioned");
  schema.option("stage_dims", config.stage_dims, "width of what conditions each of them").at_least(1);
  schema.option("kmeans_in_eval", config.kmeans_in_eval,
                "musiclm-pytorch's way: fresh codebooks are placed outside training, too");
}

EmbedQuantizerImpl::EmbedQuantizerImpl(const EmbedQuantizerConfig& config) : config_(config) {
  require(!config.stages.empty() && config.stages.size() == config.stage_dims.size(),
          "[condition] expected a width for each stage, got {} stages and {} widths", config.stages.size(),
          config.stage_dims.size());
  quantizer = register_module("quantizer", Quantizer(quantizer_config(config), config.dim));
  for (size_t i = 0; i < config.stages.size(); ++i) {
    const std::string& stage = config.stages[i];
    require(tables_.count(stage) == 0, "[condition] two stages are called {}", stage);
    const at::Tensor start =
        at::randn({config.quantizers, config.codebook_size, config.stage_dims[i]}) * 0.02;
    tables_[stage] = register_parameter(stage + "_table", start);
  }
}

const at::Tensor& EmbedQuantizerImpl::table(const std::string& stage) const {
  const auto found = tables_.find(stage);
  require(found != tables_.end(), "[condition] there is no table for the stage {}; there are {}", stage,
          fmt::join(config_.stages, ", "));
  return found->second;
}

at::Tensor EmbedQuantizerImpl::codes(const at::Tensor& latents, Draws* draws) {
  const at::NoGradGuard no_grad;
  return quantizer(latents.unsqueeze(0), draws).codes.select(0, 0).select(0, 0);
}

at::Tensor EmbedQuantizerImpl::vectors(const at::Tensor& codes) {
  const at::NoGradGuard no_grad;
  return quantizer->decode(codes.view({1, 1, codes.size(0), codes.size(1)})).select(0, 0);
}

at::Tensor EmbedQuantizerImpl::condition(const at::Tensor& codes, const std::string& stage) const {
  const at::Tensor& all = table(stage);
  // One table below the other, each quantizer with its own rows.
  const at::Tensor first = at::arange(config_.quantizers, codes.options()) * config_.codebook_size;
  return at::embedding(all.flatten(0, 1), codes + first);
}

}  // namespace melete::musiclm
