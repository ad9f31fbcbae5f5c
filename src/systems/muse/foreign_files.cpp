#include "systems/muse/foreign_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "io/foreign_weights.h"

namespace melete::muse_maskgit_pytorch {

namespace {

using FileJson = nlohmann::ordered_json;

int64_t size_in_file(const TensorMap& state, const std::string& name, int64_t dimension) {
  return weight_size(state, name, dimension, "muse-maskgit-pytorch");
}

// Bits of a lookup-free quantizer and how often; or the codebook of the other kind.
void add_quantizer(FileJson& made, const TensorMap& state, int64_t width) {
  const bool projects = find_weight(state, "quantizer.project_in.weight") != nullptr;
  const int64_t inner = projects ? size_in_file(state, "quantizer.project_in.weight", 0) : width;
  if (find_weight(state, "quantizer.mask")) {
    const int64_t bits = size_in_file(state, "quantizer.mask", 0);
    require(bits > 0 && bits < 40, "[muse-maskgit-pytorch] `quantizer.mask` has {} bits", bits);
    made["codebook_size"] = int64_t{1} << bits;
    if (inner != bits) made["lfq_kwargs"] = {{"num_codebooks", inner / bits}, {"diversity_gamma", 4}};
    return;
  }
  made["lookup_free_quantization"] = false;
  made["codebook_size"] = size_in_file(state, "quantizer._codebook.embed", 1);
  const int64_t books = size_in_file(state, "quantizer._codebook.embed", 0),
                code = size_in_file(state, "quantizer._codebook.embed", 2);
  if (code != width) made["vq_codebook_dim"] = code;
  if (inner != code) made["vq_heads"] = inner / code;
  if (books > 1) made["vq_separate_codebook_per_head"] = true;
}

}  // namespace

FileJson vqgan_arguments(const TensorMap& state) {
  const std::string first = "enc_dec.encoders.0.weight";
  FileJson made;
  const int64_t dim = size_in_file(state, first, 0);
  made["dim"] = dim;
  made["channels"] = size_in_file(state, first, 1);
  made["encdec_first_conv_kernel_size"] = size_in_file(state, first, 2);
  std::vector<int64_t> multiples, blocks;
  int64_t width = dim;
  const int64_t items = numbered_below(state, "enc_dec.encoders.");
  for (int64_t i = 1; i < items; ++i) {
    const std::string down = fmt::format("enc_dec.encoders.{}.0.weight", i);
    if (find_weight(state, down)) {
      width = size_in_file(state, down, 0);
      multiples.push_back(width / std::max<int64_t>(1, dim));
      blocks.push_back(0);
    } else {
      require(!blocks.empty() && find_weight(state, fmt::format("enc_dec.encoders.{}.net.0.weight", i)),
              "[muse-maskgit-pytorch] `enc_dec.encoders.{}` is neither a halving nor a residual block", i);
      ++blocks.back();
    }
  }
  require(!multiples.empty(), "[muse-maskgit-pytorch] the encoder has no layer that halves a picture");
  made["layers"] = multiples.size();
  made["encdec_layer_mults"] = multiples;
  made["encdec_num_resnet_blocks"] = blocks;
  add_quantizer(made, state, width);
  const int64_t judged = numbered_below(state, "discr.layers.");
  if (judged > 0)
    made["discr_layers"] = judged - 1;
  else
    made["use_vgg_and_gan"] = false;
  return made;
}

FileJson transformer_arguments(const TensorMap& state, bool critic) {
  FileJson made;
  const int64_t embeddings = size_in_file(state, "token_emb.weight", 0),
                dim = size_in_file(state, "token_emb.weight", 1);
  made["num_tokens"] = critic ? embeddings : embeddings - 1;  // one of them is the mask
  made["dim"] = dim;
  made["seq_len"] = size_in_file(state, "pos_emb.weight", 0);
  made["depth"] = numbered_below(state, "transformer_blocks.layers.");
  const std::string layer = "transformer_blocks.layers.0.";
  const int64_t head = size_in_file(state, layer + "0.q_scale", 0);
  made["dim_head"] = head;
  made["heads"] = size_in_file(state, layer + "0.to_q.weight", 0) / std::max<int64_t>(1, head);
  // The inner width is rounded down; any multiple that leads to it will do.
  const auto inner = static_cast<double>(size_in_file(state, layer + "2.4.weight", 1));
  const double multiple = 3 * inner / (2 * static_cast<double>(dim)), rounded = std::round(multiple);
  const bool whole = std::floor(static_cast<double>(dim) * 2 * rounded / 3) == inner;
  made["ff_mult"] = whole ? rounded : 3 * (inner + 0.5) / (2 * static_cast<double>(dim));
  return made;
}

FileJson with_given(FileJson seen, const FileJson& given, const std::string& where) {
  for (const auto& [name, value] : given.items()) {
    const auto found = seen.find(name);
    if (found != seen.end() && found->is_array() && value.is_number())
      continue;  // the weights say it in full
    require(found == seen.end() || *found == value, "[{}] {} = {} is given, the weights say {}", where, name,
            value.dump(), found == seen.end() ? "nothing" : found->dump());
    seen[name] = value;
  }
  return seen;
}

}  // namespace melete::muse_maskgit_pytorch
