// Published weights in all their spellings, against one another and against what they stand for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>
#include <fstream>
#include <map>
#include <regex>

#include "base/pickle_bytes.h"
#include "base/temporary_folder.h"
#include "cli/app.h"
#include "core/base/error.h"
#include "data/token_folder.h"
#include "io/base/audio_file.h"
#include "io/base/zip_archive.h"
#include "io/foreign_file.h"
#include "nn/frozen.h"
#include "pretrained/encodec_names.h"
#include "pretrained/fairseq.h"
#include "pretrained/hubert_names.h"
#include "pretrained/import.h"
#include "pretrained/vq_wav2vec_names.h"
#include "roles/open.h"

namespace melete {
namespace frozen_import_test {

using ::testing::HasSubstr;
using testing::TemporaryFolder;
using Json = nlohmann::ordered_json;

const std::string kGolden = std::string(MELETE_SOURCE_DIR) + "/tests/golden/audiolm/";

Json golden_config(const std::string& name) {
  std::ifstream file(kGolden + name + "/case.json");
  return Json::parse(file).at("config");
}

TensorMap golden(const std::string& name, const char* file = "weights.safetensors") {
  return read_tensors(kGolden + name + "/" + file);
}

template <class Function>
std::string refusal(const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TensorMap renamed(const TensorMap& weights, const std::vector<std::pair<std::string, std::string>>& rules) {
  TensorMap result;
  for (const auto& [name, tensor] : weights) {
    std::string now = name;
    for (const auto& [from, to] : rules) now = std::regex_replace(now, std::regex(from), to);
    result.emplace(now, tensor);
  }
  return result;
}

void expect_same(const at::Tensor& given, const at::Tensor& expected) {
  ASSERT_EQ(given.sizes(), expected.sizes());
  EXPECT_LE((given - expected).abs().max().item<double>(), 1e-6 * (1 + expected.abs().max().item<double>()));
}

TEST(WeightNorm, FoldsBothSpellingsOverEitherDimension) {
  for (const int64_t dimension : {int64_t{0}, int64_t{2}}) {
    const at::Tensor v = at::randn({6, 4, 5});
    std::vector<int64_t> shape(3, 1);
    shape[static_cast<size_t>(dimension)] = v.size(dimension);
    const at::Tensor g = at::randn(shape);
    const at::Tensor wanted = at::_weight_norm(v, g, dimension);
    const TensorMap old = fold_weight_norm({{"a.weight_g", g}, {"a.weight_v", v}, {"a.bias", g}});
    const TensorMap young = fold_weight_norm(
        {{"a.parametrizations.weight.original0", g}, {"a.parametrizations.weight.original1", v}});
    ASSERT_EQ(old.size(), 2u);
    ASSERT_EQ(young.size(), 1u);
    expect_same(old.at("a.weight"), wanted);
    expect_same(young.at("a.weight"), wanted);
  }
  EXPECT_THAT(refusal([] { fold_weight_norm({{"a.weight_v", at::ones({2, 2})}}); }), HasSubstr("a.weight_g"));
  EXPECT_THAT(refusal([] {
                fold_weight_norm({{"a.weight_g", at::ones({3, 1})}, {"a.weight_v", at::ones({2, 2})}});
              }),
              HasSubstr("do not fit"));
}

TEST(FairseqLayers, ListsAddedAndRepeated) {
  const auto layers = fairseq::conv_layers("[(512,10,5)] + [(512, 3, 2)] * 4 + [(256,2,2)] * 2");
  EXPECT_EQ(layers.dims, (std::vector<int64_t>{512, 512, 512, 512, 512, 256, 256}));
  EXPECT_EQ(layers.kernels, (std::vector<int64_t>{10, 3, 3, 3, 3, 2, 2}));
  EXPECT_EQ(layers.strides, (std::vector<int64_t>{5, 2, 2, 2, 2, 2, 2}));
  EXPECT_EQ(fairseq::conv_layers("[(8, 10, 5), (8, 8, 4),]").dims.size(), 2u);
  for (const char* wrong : {"", "[]", "[(1,2)]", "[(1,2,3)", "__import__('os')", "[(1,2,3)] * 999999999",
                            "[(1,2,3)] - [(1,2,3)]", "[(1,2,3)] + "})
    EXPECT_THAT(refusal([&] { fairseq::conv_layers(wrong); }), HasSubstr("[fairseq]")) << wrong;
}

// Meta's names with weight_g, Hugging Face's with parametrizations, and the configuration read off the
// weights.
TEST(EncodecImport, SpellingsAgree) {
  const FrozenScope frozen_scope;
  const TensorMap meta = golden("encodec_small_24khz");
  const TensorMap hugging =
      renamed(meta, {{R"(^(en|de)coder\.model\.)", "$1coder.layers."},
                     {R"(\.(conv\.conv|convtr\.convtr)\.)", ".conv."},
                     {R"(weight_g$)", "parametrizations.weight.original0"},
                     {R"(weight_v$)", "parametrizations.weight.original1"},
                     {R"(^quantizer\.vq\.layers\.(\d+)\._codebook\.)", "quantizer.layers.$1.codebook."}});
  const EncodecConfig given = foreign_encodec::from_arguments(golden_config("encodec_small_24khz"));
  for (const TensorMap* weights : {&meta, &hugging}) {
    EncodecConfig read = foreign_encodec::from_weights(*weights, "test");
    read.quantizers = given.quantizers;
    EncodecConfig wanted = given;
    EXPECT_EQ(schema_of(read).json(), schema_of(wanted).json());
    Encodec model = foreign_encodec::load(read, *weights, "test");
    const TensorMap io = golden("encodec_small_24khz", "io.safetensors");
    EXPECT_TRUE(model->quantize(model->encode(io.at("in.wave").unsqueeze(1))).equal(io.at("out.codes")));
  }
  EncodecConfig public_size;
  EXPECT_EQ(public_size.quantizers_for(6), 8);
  EXPECT_EQ(public_size.quantizers_for(24), 32);
  EXPECT_EQ(public_size.quantizers_for(1.5), 2);
  const Json config_json = {{"sampling_rate", 24000}, {"target_bandwidths", {1.5, 3.0, 6.0, 12.0, 24.0}}};
  EXPECT_EQ(foreign_encodec::from_config_json(config_json).codebooks, 32);
}

// Widths that do not divide: what is inside the first units alone does not tell by how much.
TEST(EncodecImport, WidthsThatDoNotDivide) {
  for (const auto& [filters, compress] :
       std::vector<std::pair<int64_t, int64_t>>{{3, 2}, {5, 3}, {5, 2}, {7, 4}, {9, 2}, {4, 1}, {32, 2}}) {
    EncodecConfig config;
    config.dim = 8;
    config.filters = filters;
    config.compress = compress;
    config.ratios = {4, 2, 2};
    config.codebooks = config.quantizers = 4;
    config.codebook_size = 16;
    TensorMap theirs;
    const Encodec model(config);
    const std::map<std::string, std::string> parts = {
        {"first", "block.1"}, {"second", "block.3"}, {"shortcut", "shortcut"}};
    const auto conv = [&](const std::string& at, const std::string& ours) {
      for (const char* leaf : {"weight", "bias"})
        theirs[at + "." + leaf] = tensors_of(*model).at(ours + ".convolution." + leaf);
    };
    conv("encoder.model.0.conv.conv", "encoder_input");
    conv("encoder.model.12.conv.conv", "encoder_output");
    for (int i = 0; i < 3; ++i) {
      conv(fmt::format("encoder.model.{}.conv.conv", 3 + 3 * i), fmt::format("encoder_blocks.{}.down", i));
      for (const auto& [ours, part] : parts)
        conv(fmt::format("encoder.model.{}.{}.conv.conv", 1 + 3 * i, part),
             fmt::format("encoder_blocks.{}.units.0.{}", i, ours));
    }
    theirs["encoder.model.10.lstm.weight_ih_l0"] = at::zeros({1});
    for (int i = 0; i < 4; ++i)
      theirs[fmt::format("quantizer.vq.layers.{}._codebook.embed", i)] = at::zeros({16, 8});
    const EncodecConfig read = foreign_encodec::from_weights(theirs, "test");
    EXPECT_EQ(read.ratios, config.ratios);
    // Another divisor may give the same widths; then it is the same model.
    for (int64_t width = filters; width <= 4 * filters; width *= 2)
      EXPECT_EQ(width / read.compress, width / compress) << filters << " by " << compress;
  }
}

TEST(EncodecImport, SaysWhatIsWrong) {
  TensorMap weights = golden("encodec_small_24khz");
  const EncodecConfig config = foreign_encodec::from_arguments(golden_config("encodec_small_24khz"));
  TensorMap missing = weights;
  missing.erase("decoder.model.6.convtr.convtr.bias");
  EXPECT_THAT(refusal([&] { foreign_encodec::load(config, missing, "x.th"); }),
              HasSubstr("decoder.model.6.convtr.convtr.bias"));
  TensorMap more = weights;
  more.emplace("surprise", at::ones({1}));
  EXPECT_THAT(refusal([&] { foreign_encodec::load(config, more, "x.th"); }), HasSubstr("surprise"));
  EXPECT_THAT(refusal([&] {
                foreign_encodec::from_weights({{"a", at::ones({1})}}, "x.th");
              }),
              HasSubstr("not an EnCodec"));
}

const std::vector<std::pair<std::string, std::string>> kToFairseq = {
    {R"(^(feature_extractor\.conv_layers\.\d+)\.conv\.)", "$1.0."},
    {R"(^(feature_extractor\.conv_layers\.\d+)\.layer_norm\.)", "$1.2."},
    {R"(^feature_projection\.layer_norm\.)", "layer_norm."},
    {R"(^feature_projection\.projection\.)", "post_extract_proj."},
    {R"(^encoder\.pos_conv_embed\.conv\.)", "encoder.pos_conv.0."},
    {R"(^(encoder\.layers\.\d+)\.attention\.)", "$1.self_attn."},
    {R"(^(encoder\.layers\.\d+)\.layer_norm\.)", "$1.self_attn_layer_norm."},
    {R"(\.feed_forward\.intermediate_dense\.)", ".fc1."},
    {R"(\.feed_forward\.output_dense\.)", ".fc2."}};

const Json kFairseqModel = {{"conv_feature_layers", "[(16,10,5)] + [(16,3,2)] * 4 + [(16,2,2)] * 2"},
                            {"encoder_embed_dim", 32},
                            {"encoder_layers", 4},
                            {"encoder_attention_heads", 4},
                            {"encoder_ffn_embed_dim", 48},
                            {"conv_pos", 16},
                            {"conv_pos_groups", 4},
                            {"extractor_mode", "default"}};

TEST(HubertImport, FairseqEqualsHuggingFace) {
  const FrozenScope frozen_scope;
  TensorMap weights = golden("hubert_kmeans_base");
  weights.erase("kmeans.cluster_centers");
  TensorMap fairseq = renamed(weights, kToFairseq);
  fairseq.emplace("mask_emb", at::ones({32}));
  fairseq.emplace("final_proj.weight", at::ones({2, 32}));
  const HubertConfig config = foreign_hubert::from_fairseq(kFairseqModel);
  Hubert theirs = foreign_hubert::load(config, fairseq, "hubert.pt");
  const TensorMap io = golden("hubert_kmeans_base", "io.safetensors");
  expect_same(theirs->hidden_state(io.at("in.wave"), 3) / 10, io.at("out.hidden_state.3") / 10);

  // With a prefix, in the newer spelling, and only the layers that are needed.
  const TensorMap newer = renamed(weights, {{"weight_g$", "parametrizations.weight.original0"},
                                            {"weight_v$", "parametrizations.weight.original1"},
                                            {"^", "hubert."}});
  Hubert low = foreign_hubert::load(config, newer, "hubert", 3);
  EXPECT_EQ(low->config().layers, 3);
  EXPECT_TRUE(low->forward(io.at("in.wave")).equal(theirs->hidden_state(io.at("in.wave"), 3)));
  EXPECT_THAT(refusal([&] { foreign_hubert::load(config, newer, "hubert", 5); }), HasSubstr("has 4 layers"));

  HubertConfig read = foreign_hubert::from_weights(fairseq, "hubert.pt");
  read.heads = 4;  // the one thing that weights do not say
  HubertConfig wanted = config;
  EXPECT_EQ(schema_of(read).json(), schema_of(wanted).json());
  EXPECT_THAT(refusal([&] {
                foreign_hubert::from_weights({{"a", at::ones({1})}}, "x.pt");
              }),
              HasSubstr("not a HuBERT"));
}

// The large style: a norm in every convolution, norms first, a bias, a standardised wave, batch norm of the
// positions; fairseq's names against Hugging Face's, and the arithmetic against LibTorch's own layers.
TEST(HubertImport, LargeStyle) {
  const FrozenScope frozen_scope;
  torch::manual_seed(5);
  HubertConfig config;
  config.conv_dims = {6, 8};
  config.conv_kernels = {10, 3};
  config.conv_strides = {5, 2};
  config.conv_bias = true;
  config.conv_norm = "layer";
  config.dim = 8;
  config.layers = 2;
  config.heads = 2;
  config.feed_forward_dim = 12;
  config.norm_first = true;
  config.position_kernel = 5;
  config.position_groups = 2;
  config.position_batch_norm = true;
  config.standardise_wave = true;
  TensorMap hugging;
  const auto add = [&](const std::string& name, at::IntArrayRef shape) {
    hugging.emplace(name, at::randn(shape) * 0.5 + 0.1);
  };
  const auto both = [&](const std::string& name, at::IntArrayRef weight, int64_t bias) {
    add(name + ".weight", weight);
    add(name + ".bias", {bias});
  };
  both("feature_extractor.conv_layers.0.conv", {6, 1, 10}, 6);
  both("feature_extractor.conv_layers.0.layer_norm", {6}, 6);
  both("feature_extractor.conv_layers.1.conv", {8, 6, 3}, 8);
  both("feature_extractor.conv_layers.1.layer_norm", {8}, 8);
  both("feature_projection.layer_norm", {8}, 8);
  both("feature_projection.projection", {8, 8}, 8);
  both("encoder.pos_conv_embed.conv", {8, 4, 5}, 8);
  both("encoder.pos_conv_embed.batch_norm", {8}, 8);
  add("encoder.pos_conv_embed.batch_norm.running_mean", {8});
  hugging.emplace("encoder.pos_conv_embed.batch_norm.running_var", at::rand({8}) + 0.5);
  hugging.emplace("encoder.pos_conv_embed.batch_norm.num_batches_tracked", at::ones({}, at::kLong));
  both("encoder.layer_norm", {8}, 8);
  for (const int layer : {0, 1}) {
    const std::string at = "encoder.layers." + std::to_string(layer) + ".";
    for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"})
      both(at + "attention." + name, {8, 8}, 8);
    both(at + "layer_norm", {8}, 8);
    both(at + "final_layer_norm", {8}, 8);
    both(at + "feed_forward.intermediate_dense", {12, 8}, 12);
    both(at + "feed_forward.output_dense", {8, 12}, 8);
  }
  Hubert model = foreign_hubert::load(config, hugging, "test");
  const at::Tensor wave = at::randn({2, 200}) * 3 + 1;

  // By LibTorch's own layers.
  namespace F = torch::nn::functional;
  const auto w = [&](const std::string& name) { return hugging.at(name); };
  const auto norm = [&](const at::Tensor& x, const std::string& name) {
    return at::layer_norm(x, {x.size(-1)}, w(name + ".weight"), w(name + ".bias"));
  };
  at::Tensor x = ((wave - wave.mean(1, true)) / (wave.var(1, false, true) + 1e-5).sqrt()).unsqueeze(1);
  for (const int layer : {0, 1}) {
    const std::string at = "feature_extractor.conv_layers." + std::to_string(layer);
    x = at::conv1d(x, w(at + ".conv.weight"), w(at + ".conv.bias"), layer == 0 ? 5 : 2);
    x = at::gelu(norm(x.transpose(1, 2), at + ".layer_norm")).transpose(1, 2);
  }
  expect_same(model->conv_features(wave), x);
  x = norm(x.transpose(1, 2), "feature_projection.layer_norm");
  x = at::linear(x, w("feature_projection.projection.weight"), w("feature_projection.projection.bias"));
  const std::string bn = "encoder.pos_conv_embed.batch_norm.";
  const at::Tensor normed =
      at::batch_norm(x.transpose(1, 2), w(bn + "weight"), w(bn + "bias"), w(bn + "running_mean"),
                     w(bn + "running_var"), false, 0.1, 1e-5, false);
  const at::Tensor position = at::conv1d(normed, w("encoder.pos_conv_embed.conv.weight"),
                                         w("encoder.pos_conv_embed.conv.bias"), 1, 2, 1, 2);
  x = x + at::gelu(position).transpose(1, 2);
  expect_same(model->hidden_state(wave, 0), x);
  torch::nn::MultiheadAttention attention(torch::nn::MultiheadAttentionOptions(8, 2));
  const std::string first = "encoder.layers.0.";
  const auto proj = [&](const char* leaf) {
    return at::cat({w(first + "attention.q_proj." + leaf), w(first + "attention.k_proj." + leaf),
                    w(first + "attention.v_proj." + leaf)});
  };
  attention->in_proj_weight.copy_(proj("weight"));
  attention->in_proj_bias.copy_(proj("bias"));
  attention->out_proj->weight.copy_(w(first + "attention.out_proj.weight"));
  attention->out_proj->bias.copy_(w(first + "attention.out_proj.bias"));
  const at::Tensor query = norm(x, first + "layer_norm").transpose(0, 1).contiguous();
  x = x + std::get<0>(attention(query, query, query)).transpose(0, 1);
  const at::Tensor wide = at::gelu(at::linear(norm(x, first + "final_layer_norm"),
                                              w(first + "feed_forward.intermediate_dense.weight"),
                                              w(first + "feed_forward.intermediate_dense.bias")));
  x = x + at::linear(wide, w(first + "feed_forward.output_dense.weight"),
                     w(first + "feed_forward.output_dense.bias"));
  EXPECT_LT((model->hidden_state(wave, 1) - x).abs().max().item<double>(), 1e-4);
  // Only the last state has the last norm.
  expect_same(model->forward(wave), norm(model->hidden_state(wave, 2), "encoder.layer_norm"));

  auto rules = kToFairseq;
  rules[1] = {R"(^(feature_extractor\.conv_layers\.\d+)\.layer_norm\.)", "$1.2.1."};
  rules[4] = {R"(^encoder\.pos_conv_embed\.conv\.)", "encoder.pos_conv.1."};
  rules.push_back({R"(^encoder\.pos_conv_embed\.batch_norm\.)", "encoder.pos_conv.0."});
  Hubert fairseq = foreign_hubert::load(config, renamed(hugging, rules), "test");
  EXPECT_TRUE(fairseq->forward(wave).equal(model->forward(wave)));
}

// A torch file as fairseq writes it, omegaconf around its settings, read and stored as ours.
TEST(FairseqFile, HubertWithKmeansBecomesATokenizer) {
  TemporaryFolder folder;
  using namespace testing;
  TensorMap weights = golden("hubert_kmeans_base");
  const at::Tensor centres = weights.at("kmeans.cluster_centers").contiguous();
  weights.erase("kmeans.cluster_centers");
  const TensorMap fairseq = renamed(weights, kToFairseq);
  std::string entries;
  std::vector<std::pair<std::string, std::string>> storages;
  for (const auto& [name, tensor] : fairseq) {
    const at::Tensor plain = tensor.contiguous();
    const std::string key = std::to_string(storages.size());
    std::string shape, strides;
    for (int64_t i = 0; i < plain.dim(); ++i) {
      shape += number(static_cast<int32_t>(plain.size(i)));
      strides += number(static_cast<int32_t>(plain.stride(i)));
    }
    const auto count = static_cast<int32_t>(plain.numel());
    const std::string storage =
        tuple(text("storage") + global("torch", "FloatStorage") + text(key) + text("cpu") + number(count)) +
        "Q";
    entries += text(name) + global("torch._utils", "_rebuild_tensor_v2") +
               tuple(storage + number(0) + tuple(shape) + tuple(strides) + "\x89" +
                     global("collections", "OrderedDict") + ")R") +
               "R";
    storages.emplace_back(key, std::string(static_cast<const char*>(plain.data_ptr()), plain.nbytes()));
  }
  const auto node = [](const std::string& value) {
    return global("omegaconf.nodes", "AnyNode") + ")\x81" + dict(text("_val") + value) + "b";
  };
  std::string settings;
  for (const auto& [key, value] : kFairseqModel.items())
    settings +=
        text(key) + node(value.is_string() ? text(value.get<std::string>()) : number(value.get<int32_t>()));
  const auto wrapped = [](const std::string& content) {
    return global("omegaconf.dictconfig", "DictConfig") + ")\x81" + dict(text("_content") + dict(content)) +
           "b";
  };
  const std::string pickle = proto() +
                             dict(text("args") + "N" + text("cfg") +
                                  wrapped(text("model") + wrapped(settings) + text("task") +
                                          wrapped(text("normalize") + node("\x89"))) +
                                  text("model") + dict(entries)) +
                             ".";
  const std::string path = folder / "hubert.pt";
  {
    AtomicFile file(path);
    ZipWriter zip(file);
    zip.add("x/data.pkl", pickle);
    for (const auto& [key, bytes] : storages) zip.add("x/data/" + key, bytes);
    zip.finish();
    file.commit();
  }
  const Hubert model = import_hubert(path, 3);
  const KmeansTokenizer made(std::make_unique<HubertFeatures>(model, 3), Centroids{centres, {}, {}});
  const TensorMap io = golden("hubert_kmeans_base", "io.safetensors");
  EXPECT_TRUE(made.tokenize(io.at("in.wave")).equal(io.at("out.ids")));

  const std::string stored = folder / "semantic.safetensors";
  save_frozen(stored, frozen(made));
  const auto loaded = open_semantic_tokenizer(stored);
  EXPECT_EQ(loaded->identity(), made.identity());
  EXPECT_EQ(loaded->codebook_size(), 12);
  EXPECT_EQ(loaded->samples_per_token(), 320);
  EXPECT_EQ(loaded->tokens(9600), 29);
  EXPECT_TRUE(loaded->tokenize(io.at("in.wave")).equal(io.at("out.ids")));
}

TensorMap wav2vec_weights(bool gumbel, int64_t layers) {
  torch::manual_seed(11);
  TensorMap weights;
  const int64_t dims[] = {1, 8, 8}, kernels[] = {10, 8};
  for (int i = 0; i < 2; ++i) {
    const std::string at = "feature_extractor.conv_layers." + std::to_string(i);
    weights.emplace(at + ".0.weight", at::randn({dims[i + 1], dims[i], kernels[i]}));
    weights.emplace(at + ".2.weight", at::randn({8}));
    weights.emplace(at + ".2.bias", at::randn({8}));
  }
  weights.emplace("feature_aggregator.conv_layers.0.1.weight", at::ones({1}));
  if (gumbel && layers == 1) {
    weights.emplace("vector_quantizer.vars", at::randn({1, 10, 4}));
    weights.emplace("vector_quantizer.weight_proj.weight", at::randn({10, 8}));
    weights.emplace("vector_quantizer.weight_proj.bias", at::randn({10}));
  } else if (gumbel) {
    weights.emplace("vector_quantizer.weight_proj.0.0.weight", at::randn({16, 8}));
    weights.emplace("vector_quantizer.weight_proj.0.0.bias", at::randn({16}));
    weights.emplace("vector_quantizer.weight_proj.1.weight", at::randn({10, 16}));
    weights.emplace("vector_quantizer.weight_proj.1.bias", at::randn({10}));
  } else {
    weights.emplace("vector_quantizer.embedding", at::randn({5, 2, 4}));
    weights.emplace("vector_quantizer.projection.0.weight", at::randn({8, 4, 1}));
    weights.emplace("vector_quantizer.projection.1.weight", at::randn({8}));
    weights.emplace("vector_quantizer.projection.1.bias", at::randn({8}));
  }
  return weights;
}

TEST(VqWav2Vec, TokensByTheDefinition) {
  const at::Tensor wave = at::randn({2, 400});
  for (const int64_t layers : {0, 1, 2}) {  // 0: k-means
    const TensorMap w = wav2vec_weights(layers > 0, layers);
    const Json settings = {{"activation", "gelu"}, {"skip_connections_feat", true}, {"vq_groups", 2}};
    const VqWav2VecConfig config = fairseq::vq_wav2vec_config(settings, w, "test");
    EXPECT_EQ(config.codebook_size, 5);
    const VqWav2VecTokenizer tokenizer(fairseq::load_vq_wav2vec(config, w, "test"));
    EXPECT_EQ(tokenizer.samples_per_token(), 10);

    at::Tensor x = wave.unsqueeze(1);
    for (const int i : {0, 1}) {
      const std::string at = "feature_extractor.conv_layers." + std::to_string(i);
      const at::Tensor before = x;
      x = at::conv1d(x, w.at(at + ".0.weight"), {}, i == 0 ? 5 : 4);
      x = at::gelu(at::group_norm(x, 1, w.at(at + ".2.weight"), w.at(at + ".2.bias")));
      if (i == 1) x = (x + before.slice(2, 0, before.size(2), 4).narrow(2, 0, x.size(2))) * std::sqrt(0.5);
    }
    x = (x.abs() + 1).log();
    at::Tensor wanted;
    if (layers == 0) {
      // Two groups of four channels, each with its own matrix.
      std::vector<at::Tensor> halves;
      for (int64_t g = 0; g < 2; ++g)
        halves.push_back(
            at::matmul(w.at("vector_quantizer.projection.0.weight").squeeze(2).narrow(0, 4 * g, 4),
                       x.narrow(1, 4 * g, 4)));
      const at::Tensor z = at::group_norm(at::cat(halves, 1), 2, w.at("vector_quantizer.projection.1.weight"),
                                          w.at("vector_quantizer.projection.1.bias"));
      std::vector<at::Tensor> codes;
      for (int64_t g = 0; g < 2; ++g) {
        const at::Tensor rows = z.narrow(1, 4 * g, 4).transpose(1, 2);  // [batch, frames, 4]
        const at::Tensor book = w.at("vector_quantizer.embedding").select(1, g);
        codes.push_back((rows.unsqueeze(2) - book).norm(2, -1).argmin(-1));
      }
      wanted = at::stack(codes, -1).flatten(1);
    } else {
      at::Tensor y = x.transpose(1, 2);
      if (layers == 2)
        y = at::gelu(at::linear(y, w.at("vector_quantizer.weight_proj.0.0.weight"),
                                w.at("vector_quantizer.weight_proj.0.0.bias")));
      const std::string last =
          layers == 2 ? "vector_quantizer.weight_proj.1" : "vector_quantizer.weight_proj";
      y = at::linear(y, w.at(last + ".weight"), w.at(last + ".bias"));
      wanted = y.view({2, y.size(1), 2, 5}).argmax(-1).flatten(1);
    }
    const at::Tensor given = tokenizer.tokenize(wave);
    EXPECT_TRUE(given.equal(wanted)) << layers;
    EXPECT_EQ(given.size(1), tokenizer.tokens(400));

    TemporaryFolder folder;
    save_frozen(folder / "t.safetensors", frozen(tokenizer));
    const auto loaded = open_semantic_tokenizer(folder / "t.safetensors");
    EXPECT_EQ(loaded->identity(), tokenizer.identity());
    EXPECT_TRUE(loaded->tokenize(wave).equal(given));
  }
  TensorMap broken = wav2vec_weights(false, 0);
  broken.erase("feature_extractor.conv_layers.0.0.weight");
  EXPECT_THAT(refusal([&] { fairseq::vq_wav2vec_config(nullptr, broken, "x.pt"); }),
              HasSubstr("not a vq-wav2vec"));
}

const std::string kPieces = std::string(MELETE_SOURCE_DIR) + "/tests/base/sentencepiece/spiece.model";

TEST(TextTokenizers, BytesAndPieces) {
  const ByteTokenizer bytes;
  EXPECT_EQ(bytes.encode("hi"), (std::vector<int64_t>{'h' + 2, 'i' + 2, kTextEnd}));
  EXPECT_EQ(bytes.text(bytes.encode("Grüße")), "Grüße");
  EXPECT_EQ(bytes.text({'a' + 2, 0xff + 2}), "a\uFFFD");  // a model's bytes may be no characters
  EXPECT_EQ(bytes.encode("abcdef", 3), (std::vector<int64_t>{'a' + 2, 'b' + 2, kTextEnd}));
  EXPECT_EQ(bytes.encode(""), (std::vector<int64_t>{kTextEnd}));

  TemporaryFolder folder;
  const SentencePieceTokenizer pieces(kPieces);
  const auto ids = pieces.encode("a slow bell");
  EXPECT_EQ(ids.back(), kTextEnd);
  EXPECT_EQ(pieces.text(ids), "a slow bell");
  EXPECT_EQ(pieces.encode("a slow bell and drums", 4).size(), 4u);
  const TextIds padded = text_ids(pieces, {"a slow bell", ""});
  EXPECT_EQ(padded.mask[1].sum().item<int64_t>(), 1);
  EXPECT_EQ(padded.ids[1][0].item<int64_t>(), kTextEnd);
  EXPECT_EQ(padded.ids[1][1].item<int64_t>(), kTextPad);

  std::ofstream(folder / "words.model") << "no model at all";
  const SentencePieceTokenizer again(pieces.model_bytes(), "memory");
  EXPECT_EQ(again.identity(), pieces.identity());
  EXPECT_EQ(again.encode("organ"), pieces.encode("organ"));
  // unk, a, b: no padding, no end.
  const std::string bare =
      "\x0a\x09\x0a\x05<unk>\x18\x02\x0a\x03\x0a\x01"
      "a\x0a\x03\x0a\x01"
      "b";
  EXPECT_THAT(refusal([&] { SentencePieceTokenizer(bare, "bare.model"); }), HasSubstr("--pad_id=0"));
  EXPECT_THAT(refusal([&] { SentencePieceTokenizer(folder / "words.model"); }), HasSubstr("words.model"));
  EXPECT_THAT(refusal([&] { SentencePieceTokenizer(folder / "none.model"); }), HasSubstr("none.model"));
}

TEST(T5, PaddingChangesNothingAndAFileBringsItBack) {
  TemporaryFolder folder;
  torch::manual_seed(3);
  T5Config config;
  config.vocabulary = 220;
  config.dim = 16;
  config.head_dim = 4;
  config.heads = 3;
  config.layers = 2;
  config.feed_forward_dim = 20;
  config.position_buckets = 8;
  config.position_max_distance = 12;
  config.activation = "gelu_new";
  config.gated = true;
  config.max_tokens = 9;
  const auto pieces = std::make_shared<SentencePieceTokenizer>(kPieces);
  const T5TextEncoder encoder(T5Encoder(config), pieces);
  const TextEmbeddings both = encoder.encode({"a bell", "an organ plays with drums in a large room"});
  EXPECT_EQ(both.embeddings.size(1), 9);
  const TextEmbeddings alone = encoder.encode({"a bell"});
  const int64_t tokens = alone.embeddings.size(1);
  EXPECT_TRUE(alone.mask.all().item<bool>());
  EXPECT_TRUE(at::allclose(both.embeddings[0].narrow(0, 0, tokens), alone.embeddings[0], 1e-4, 1e-5));
  EXPECT_EQ(both.embeddings[0].slice(0, tokens).abs().max().item<float>(), 0);

  save_frozen(folder / "t5.safetensors", frozen(encoder));
  const auto loaded = open_text_encoder(folder / "t5.safetensors");
  EXPECT_EQ(loaded->identity(), encoder.identity());
  EXPECT_EQ(loaded->dim(), 16);
  EXPECT_TRUE(loaded->encode({"a bell"}).embeddings.equal(alone.embeddings));

  // Its features beside the tokens of recordings, made once; and a stage that is conditioned on them.
  for (int i = 0; i < 3; ++i) {
    write_audio(folder / fmt::format("in/{}.wav", i), std::vector<float>(8000, 0.1f * static_cast<float>(i)),
                16000);
    std::ofstream(folder / fmt::format("in/{}.txt", i)) << (i == 0 ? "a bell" : "an organ plays");
  }
  const std::string in = folder.path() + "/in", shards = folder.path() + "/tokens",
                    t5 = folder / "t5.safetensors";
  ASSERT_EQ(run_program({"train", "kmeans", "--data", in, "-o", folder / "k.safetensors", "--clusters", "4",
                         "--threads", "1"}),
            0);
  ASSERT_EQ(run_program({"data", "tokenize", in, "--semantic", folder / "k.safetensors", "--text_encoder", t5,
                         "-o", shards, "--threads", "1"}),
            0);
  EXPECT_EQ(read_token_columns(shards).require_column("text_features", shards).identity, encoder.identity());
  for (const Item& item : read_token_items(shards))
    EXPECT_TRUE(at::allclose(item.find("text_features")->values,
                             encoder.encode({item.words.at("text")}).embeddings[0], 1e-4, 1e-5));
  EXPECT_EQ(run_program({"train",
                         "semantic",
                         "--data",
                         shards,
                         "--text_from",
                         t5,
                         "--model.condition",
                         "cross",
                         "--out",
                         folder.path() + "/run",
                         "--steps",
                         "1",
                         "--threads",
                         "1",
                         "--model.dim",
                         "16",
                         "--model.depth",
                         "1",
                         "--model.heads",
                         "2",
                         "--model.head_dim",
                         "8"}),
            0);
  EXPECT_EQ(run_program({"data", "tokenize", in, "--text_encoder", t5, "-o", shards}), 2) << "no tokens";

  config.vocabulary = 10;
  EXPECT_THAT(refusal([&] { T5TextEncoder(T5Encoder(config), pieces); }),
              HasSubstr("do not belong together"));
}

// The length at the front of a safetensors file may begin like a pickle or an archive.
TEST(ForeignFile, KindsAreToldApart) {
  TemporaryFolder folder;
  for (const int64_t wanted : {0x80, 0x4b50}) {
    const std::string path = folder / "x.safetensors";
    std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
    header.resize(static_cast<size_t>(wanted), ' ');
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &wanted, 8);
    testing::write_bytes(path, bytes + header + std::string(4, '\0'));
    EXPECT_EQ(read_foreign(path).tensors.count("a"), 1u) << wanted;
  }
  testing::write_bytes(folder / "y.pt", "\x80\x02}.");
  EXPECT_THAT(refusal([&] { read_foreign(folder / "y.pt"); }), HasSubstr("y.pt"));
  EXPECT_THAT(refusal([&] { read_foreign(folder / "none.pt"); }), HasSubstr("none.pt"));
  EXPECT_THAT(refusal([&] { read_foreign(folder.path()); }), HasSubstr("model.safetensors"));
}

// `melete import`, from the weights of the reference cases to files that load.
TEST(ImportCommand, EncodecHubertAndWrongFiles) {
  TemporaryFolder folder;
  const std::string encodec = folder / "encodec.safetensors", hubert = folder / "hubert/model.safetensors";
  ASSERT_EQ(run_program({"import", "encodec", kGolden + "encodec_small_24khz/weights.safetensors",
                         "--bandwidth", "0.6", "-o", encodec}),
            0);
  const auto codec = open_codec(encodec);
  EXPECT_EQ(codec->quantizers(), 2);
  const TensorMap io = golden("encodec_small_24khz", "io.safetensors");
  EXPECT_TRUE(codec->encode(io.at("in.wave")).equal(io.at("out.codes").narrow(2, 0, 2)));

  // The same file as it was downloaded, without an import: the tool takes any codec.
  const std::string foreign = kGolden + "encodec_small_24khz/weights.safetensors";
  write_audio(folder / "in/a.wav", std::vector<float>(24000, 0.1f), 24000);
  for (const std::string& from : {encodec, foreign}) {
    const auto any = open_codec(from);
    EXPECT_EQ(any->kind(), "encodec");
    EXPECT_EQ(run_program({"codec", "encode", folder / "in", "--from", from, "-o", folder / "tokens",
                           "--threads", "1"}),
              0);
    EXPECT_EQ(run_program({"codec", "decode", folder / "tokens", "--from", from, "-o", folder / "out",
                           "--threads", "1"}),
              0);
    EXPECT_EQ(read_audio(folder / "out/a.wav").frames(), 24000);
    EXPECT_EQ(run_program({"codec", "eval", "--from", from, "--data", folder / "in", "--threads", "1"}), 0);
  }
  EXPECT_EQ(run_program({"codec", "decode", folder / "tokens", "--from", encodec, "-o", folder / "no",
                         "--threads", "1"}),
            1)
      << "tokens of all quantizers, a codec of two";

  // A folder as Hugging Face has it.
  TensorMap weights = golden("hubert_kmeans_base");
  weights.erase("kmeans.cluster_centers");
  write_tensors(hubert, weights);
  std::ofstream(folder / "hubert/config.json") << golden_config("hubert_kmeans_base").at("hf_config").dump();
  const std::string stored = folder / "hubert.safetensors";
  ASSERT_EQ(run_program({"import", "hubert", folder / "hubert", "-o", stored}), 0);
  const Hubert model = hubert_of(load_frozen(stored), stored);
  const TensorMap states = golden("hubert_kmeans_base", "io.safetensors");
  const HubertFeatures features(model, 3);
  EXPECT_TRUE(
      at::allclose(features.frames_of(states.at("in.wave")), states.at("out.hidden_state.3"), 1e-4, 1e-4));
  // Layer 0 is what the first layer sees, and its tokenizer keeps none of the layers.
  const KmeansTokenizer first(std::make_unique<HubertFeatures>(model, 0),
                              Centroids{states.at("out.hidden_state.0")[0].slice(0, 0, 12), {}, {}});
  const std::string first_stored = folder / "first.safetensors";
  save_frozen(first_stored, frozen(first));
  EXPECT_TRUE(open_semantic_tokenizer(first_stored)
                  ->tokenize(states.at("in.wave")[0].unsqueeze(0))
                  .flatten()
                  .slice(0, 0, 12)
                  .equal(at::arange(12)));

  EXPECT_EQ(run_program({"import", "hubert", encodec, "-o", stored}), 1);
  EXPECT_EQ(run_program({"import", "t5", folder / "hubert", "-o", stored}), 1);
  EXPECT_EQ(run_program({"import", "vq-wav2vec", folder / "none.pt", "-o", stored}), 1);

  const std::string wav2vec = folder / "wav2vec.safetensors";
  write_tensors(wav2vec, wav2vec_weights(false, 0));
  ASSERT_EQ(run_program({"import", "vq-wav2vec", wav2vec, "-o", folder / "v.safetensors"}), 0);
  ASSERT_EQ(run_program({"import", "vq-wav2vec", wav2vec, "--target_sample_hz", "24000", "-o",
                         folder / "v24.safetensors"}),
            0);
  const auto usual = open_semantic_tokenizer(folder / "v.safetensors"),
             faster = open_semantic_tokenizer(folder / "v24.safetensors");
  EXPECT_EQ(usual->rate_hz(), 16000);
  EXPECT_EQ(faster->rate_hz(), 24000);
  EXPECT_NE(usual->identity(), faster->identity());
  const at::Tensor sound = at::randn({1, 800});
  EXPECT_TRUE(usual->tokenize(sound).equal(faster->tokenize(sound)));
  EXPECT_EQ(run_program({"import", "encodec", encodec}), 2);
}

}  // namespace frozen_import_test
}  // namespace melete
