// Parts of a codec on their own: residual quantizer, discriminators, mel spectrogram.
#include <torch/autograd.h>

#include "core/base/error.h"
#include "golden.h"
#include "kernels/complex_elementwise.h"
#include "nn/spectrum.h"
#include "systems/soundstream/foreign_names.h"

namespace melete::golden::cases_parts {

namespace {

using audiolm_pytorch::soundstream_pairs;

// Loads and compares a part whose names stand below `ours` in our model and `theirs` in the upstream one.
struct Part {
  torch::nn::Module& module;
  std::string ours, theirs;

  template <class Use>
  void each(const Use& use) const {
    for (const auto& pair : soundstream_pairs(module, ours, {}))
      use(pair.theirs.substr(theirs.size()), pair.tensor);
  }
  void load(const TensorMap& weights) const {
    const at::NoGradGuard no_grad;
    each([&](const std::string& name, const at::Tensor& tensor) {
      const auto found = weights.find(name);
      if (found == weights.end() && audiolm_pytorch::may_be_missing(name)) return;
      require(found != weights.end(), "the case has no weight `{}`", name);
      at::Tensor(tensor).copy_(found->second.reshape(tensor.sizes()));
    });
    audiolm_pytorch::load_affine_flags(module, ours, weights, {}, theirs);
  }
};

void check_residual_vq(const Case& c, Checker& check) {
  const auto config = audiolm_pytorch::residual_vq_config(c.config);
  Quantizer quantizer(config, c.config.at("dim").get<int64_t>());
  const Part part{*quantizer, "codec.quantizer.", "rq.rvqs.0."};
  part.load(c.weights);
  quantizer->train(c.json.value("mode", "train") == "train");
  // Rows are numbered through all steps, dropout has one index a step.
  ReplayDraws rows(c, "rand.");
  for (int64_t step = 0; c.has(fmt::format("in.x.{}", step)); ++step) {
    const auto label = [&](const char* name) { return fmt::format("{}.{}", name, step); };
    const at::Tensor x = c.in(label("x")).clone().set_requires_grad(true);
    struct StepDraws : ReplayDraws {
      StepDraws(const Case& recorded, int64_t at, ReplayDraws& shared)
          : ReplayDraws(recorded, "rand.", at), all(shared) {}
      at::Tensor rows(std::string_view what, int64_t population, int64_t count) override {
        return all.rows(what, population, count);
      }
      at::Tensor uniform(std::string_view what, at::IntArrayRef shape) override {
        return all.uniform(what, shape);
      }
      ReplayDraws& all;
    } draws(c, step, rows);
    const Quantized result = quantizer->forward(x, &draws);
    if (quantizer->is_training()) (result.vectors.square().mean() + result.losses.sum()).backward();
    check.close(label("quantized"), result.vectors, c.out(label("quantized")));
    check.close(label("indices"), result.codes[0], c.out(label("indices")));
    check.close(label("losses"), result.losses.reshape(c.out(label("losses")).sizes()),
                c.out(label("losses")));
    if (quantizer->is_training()) check.gradient(label("grad_x"), x.grad(), c.out(label("grad_x")));
    part.each([&](const std::string& name, const at::Tensor& tensor) {
      const std::string key = fmt::format("post.{}.{}", step, name);
      if (c.has(key)) check.close(key, tensor, c.get(key).reshape(tensor.sizes()));
    });
  }
}

void check_judgement(const Case& c, Checker& check, const Part& part, const Judgement& judged,
                     const at::Tensor& x) {
  at::Tensor loss = at::relu(1 - judged.logits).mean();
  check.close("logits", judged.logits, c.out("logits"));
  for (size_t i = 0; i < judged.features.size() + judged.complex_features.size(); ++i) {
    const std::string name = fmt::format("intermediate.{}", i);
    if (judged.complex_features.empty()) {
      check.close(name, judged.features[i], c.out(name));
      loss = loss + judged.features[i].abs().mean();
    } else {
      const ComplexPair& z = judged.complex_features[i];
      check.close(name, at::stack({z.re, z.im}, -1), c.out(name));
      loss = loss + mean_distance(z, {at::zeros_like(z.re), at::zeros_like(z.im)});
    }
  }
  loss.backward();
  check.close("loss", loss, c.out("loss"));
  check.gradient("grad_x", x.grad(), c.out("grad_x"));
  part.each([&](const std::string& name, const at::Tensor& tensor) {
    if (c.has("grad." + name)) check.gradient("grad." + name, tensor.grad(), c.get("grad." + name));
  });
}

void check_multi_scale(const Case& c, Checker& check) {
  MultiScaleDiscriminator network(audiolm_pytorch::multi_scale_config(c.config),
                                  c.config.value("input_channels", 1));
  const Part part{*network, "discriminators.scales.0.", "discriminators.0."};
  part.load(c.weights);
  const at::Tensor x = c.in("x").clone().set_requires_grad(true);
  check_judgement(c, check, part, network->forward(x), x);
}

void check_stft(const Case& c, Checker& check) {
  StftDiscriminator network(audiolm_pytorch::stft_discriminator_config(c.config));
  const Part part{*network, "discriminators.stft.", "stft_discriminator."};
  part.load(c.weights);
  const at::Tensor x = c.in("x").clone().set_requires_grad(true);
  check_judgement(c, check, part, network->forward(x.squeeze(1)), x);
}

void check_mel(const Case& c, Checker& check) {
  expect_only(c.config, {"n_fft", "win_length", "hop_length", "n_mels", "sample_rate", "normalized"});
  StftConfig stft;
  stft.n_fft = c.config.value("n_fft", 400);
  stft.window = c.config.contains("win_length") && !c.config["win_length"].is_null()
                    ? c.config["win_length"].get<int64_t>()
                    : stft.n_fft;
  stft.hop = c.config.contains("hop_length") && !c.config["hop_length"].is_null()
                 ? c.config["hop_length"].get<int64_t>()
                 : stft.window / 2;
  const MelSpectrogram mel(stft, c.config.value("n_mels", 128), c.config.value("sample_rate", 16000),
                           c.config.value("normalized", false));
  check.close("mel", mel(c.in("x")), c.out("mel"));
}

const bool registered = register_case("audiolm", "ResidualVQ", check_residual_vq) &&
                        register_case("audiolm", "MultiScaleDiscriminator", check_multi_scale) &&
                        register_case("audiolm", "ComplexSTFTDiscriminator", check_stft) &&
                        register_case("audiolm", "torchaudio.transforms.MelSpectrogram", check_mel);

}  // namespace

}  // namespace melete::golden::cases_parts
