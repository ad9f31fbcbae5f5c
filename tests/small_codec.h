// A small codec in a checkpoint file, for tests of what is done with one.
#pragma once

#include <torch/nn/module.h>
#include <torch/utils.h>

#include <string>

#include "run/checkpoint.h"
#include "systems/soundstream/gan.h"
#include "systems/system.h"

namespace melete::testing {

inline nlohmann::ordered_json small_codec_settings() {
  return {
      {"model",
       {{"codec",
         {{"sample_rate_hz", 8000},
          {"channels", 4},
          {"strides", {2, 4}},
          {"channel_multiples", {1, 2}},
          {"dim", 12},
          {"attention_window", 8},
          {"attention_heads", 2},
          {"attention_head_dim", 8},
          {"attention_depth", 2},
          {"quantizer", {{"quantizers", 4}, {"codebook_size", 37}}}}},
        {"discriminator_scales", {1}},
        {"multi_scale", {{"channels", 2}, {"layers", 1}, {"groups", {2}}}},
        {"stft",
         {{"channels", 2}, {"channel_multiples", {1}}, {"frequency_strides", {2}}, {"time_strides", {2}}}}}}};
}

// Weights and codebooks are drawn from `seed`.
inline Checkpoint small_codec_checkpoint(uint64_t seed,
                                         const nlohmann::ordered_json& settings = small_codec_settings()) {
  torch::manual_seed(seed);
  auto recipe = make_recipe("soundstream");
  recipe->schema().apply(settings);
  Checkpoint made;
  made.meta = {{"step", 7}, {"task", "soundstream"}, {"config", recipe->schema().json()}};
  SoundStreamGanConfig config;
  schema_of(config).apply(made.meta["config"]["model"]);
  SoundStreamGan gan(config);
  for (const auto& item : gan->named_parameters())
    made.tensors["model." + item.key()] = item.value().detach().clone();
  for (const auto& item : gan->named_buffers())
    made.tensors["model." + item.key()] = item.key().ends_with("embedding")
                                              ? at::randn(item.value().sizes()) * 0.3
                                              : item.value().detach().clone();
  return made;
}

inline std::string write_small_codec(const std::string& path, uint64_t seed) {
  save_checkpoint(path, small_codec_checkpoint(seed));
  return path;
}

}  // namespace melete::testing
