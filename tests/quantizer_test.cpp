// Properties of the one family of quantizers: straight-through gradients, codes that decode to what was
// heard, dropout that obeys its draws, codebooks that fill up and stay sound.
#include "nn/quantizer.h"

#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/utils.h>

#include "losses/quality.h"
#include "nn/codebook.h"

namespace melete {
namespace quantizer_test {

at::Tensor noise(at::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed));
}

// Seeded, except for the number of stages.
struct FixedStages : SeededDraws {
  FixedStages(uint64_t key, int64_t stage) : SeededDraws(key), last(stage) {}
  int64_t integer(std::string_view, int64_t low, int64_t high) override {
    range = {low, high};
    return last;
  }
  int64_t last;
  std::pair<int64_t, int64_t> range;
};

QuantizerConfig config_of(const std::string& kind, int64_t groups = 1) {
  QuantizerConfig config;
  config.kind = kind;
  config.groups = groups;
  config.quantizers = 4;
  config.codebook_size = 64;
  config.levels = {8, 5, 5};
  config.dropout = false;
  return config;
}

Quantizer make(const QuantizerConfig& config, int64_t dim, uint64_t seed = 1) {
  torch::manual_seed(seed);
  return Quantizer(config, dim);
}

// Points around `centres` well separated centres. [1, rows, dim]
at::Tensor clusters(int64_t centres, int64_t rows, int64_t dim, uint64_t seed) {
  const at::Tensor middle = noise({centres, dim}, 99) * 4;
  const at::Tensor chosen = at::randint(0, centres, {rows}, at::detail::createCPUGenerator(seed), at::kLong);
  return (middle.index_select(0, chosen) + noise({rows, dim}, seed + 1) * 0.05).unsqueeze(0);
}

std::vector<at::Tensor> state_of(Quantizer& quantizer) {
  std::vector<at::Tensor> state;
  for (const auto& buffer : quantizer->buffers()) state.push_back(buffer.clone());
  return state;
}

bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (!at::equal(a[i], b[i])) return false;
  return a.size() == b.size();
}

CodebookImpl& codebook(Quantizer& quantizer, size_t stage = 0) {
  for (const auto& item : quantizer->named_modules("", false))
    if (item.key().ends_with(".codebook") && stage-- == 0) return *item.value()->as<CodebookImpl>();
  throw std::runtime_error("no codebook");
}

// Without a projection the quantizer's gradient is the identity, whatever the number of stages and groups.
TEST(Quantizer, GradientGoesStraightThrough) {
  for (const std::string kind : {"vq", "lfq"})
    for (const int64_t groups : {1, 2})
      for (const int64_t used : {1, 2, 4}) {
        QuantizerConfig config = config_of(kind, groups);
        config.dropout = true;
        config.dropout_keep = 0;
        config.codebook_size = 64;  // lfq: 6 bits, so that 6 channels a group need no projection
        Quantizer quantizer = make(config, 6 * groups);
        FixedStages draws(5, used - 1);
        const at::Tensor x = noise({2, 50, 6 * groups}, 3).requires_grad_(),
                         pull = noise({2, 50, 6 * groups}, 4);
        const Quantized result = quantizer->forward(x, &draws);
        const at::Tensor gradient = torch::autograd::grad({result.vectors}, {x}, {pull}, true)[0];
        EXPECT_LT((gradient - pull).abs().max().item<double>(), 1e-5)
            << kind << " groups " << groups << " used " << used;
        EXPECT_GT((result.vectors - x).abs().max().item<double>(), 0.01) << "nothing was quantized";
        // The auxiliary losses have a gradient of their own, one a stage in use.
        EXPECT_TRUE(torch::autograd::grad({result.losses.sum()}, {x})[0].abs().max().item<double>() > 0);
        EXPECT_EQ((result.losses != 0).sum().item<int64_t>(), used * groups);

        config.gradient_of_every_stage = true;  // audiolm-pytorch
        Quantizer upstream = make(config, 6 * groups);
        FixedStages again(5, used - 1);
        const at::Tensor theirs =
            torch::autograd::grad({upstream->forward(x, &again).vectors}, {x}, {pull})[0];
        EXPECT_LT((theirs - static_cast<double>(used) * pull).abs().max().item<double>(), 1e-4);
      }
}

// fsq: rounding passes the gradient on, the bound before it keeps its own.
TEST(Quantizer, FiniteScalarGradientIsThatOfTheBound) {
  QuantizerConfig config = config_of("fsq");
  config.quantizers = 1;
  config.levels = {7, 5, 3};  // odd: the bound is tanh(x) * half
  Quantizer quantizer = make(config, 3);
  SeededDraws draws(1);
  const at::Tensor x = noise({1, 40, 3}, 6).requires_grad_(), pull = noise({1, 40, 3}, 7);
  const at::Tensor gradient = torch::autograd::grad({quantizer->forward(x, &draws).vectors}, {x}, {pull})[0];
  const at::Tensor levels = at::tensor({7.0, 5.0, 3.0}), half = (levels - 1) * 1.001 / 2,
                   width = at::floor(levels / 2);
  // The chain's first bound and the stage's own, one after the other.
  const auto bound = [&](const at::Tensor& t) { return at::tanh(t) * half; };
  const at::Tensor expected = torch::autograd::grad({bound(bound(x)) / width}, {x}, {pull.to(at::kFloat)})[0];
  EXPECT_LT((gradient - expected).abs().max().item<double>(), 1e-5);
}

TEST(Quantizer, CodesDecodeToTheVectors) {
  struct Case {
    const char* name;
    QuantizerConfig config;
    int64_t dim;
  };
  std::vector<Case> cases;
  for (const char* kind : {"vq", "lfq", "fsq"})
    for (const int64_t groups : {1, 2}) cases.push_back({kind, config_of(kind, groups), 12});
  for (const char* extra : {"shared", "cosine", "projected", "stochastic"}) {
    QuantizerConfig config = config_of("vq", 2);
    config.shared_codebook = std::string(extra) == "shared";
    config.cosine = std::string(extra) == "cosine";
    config.codebook_dim = std::string(extra) == "projected" ? 3 : 0;
    config.stochastic = std::string(extra) == "stochastic";
    cases.push_back({extra, config, 12});
  }
  QuantizerConfig exact = config_of("lfq");
  cases.push_back({"lfq without projection", exact, 6});
  exact.shared_codebook = true;  // has no meaning here, and must do no harm
  cases.push_back({"lfq shared", exact, 6});
  for (const Case& c : cases) {
    Quantizer quantizer = make(c.config, c.dim);
    SeededDraws draws(8);
    quantizer->forward(noise({2, 200, c.dim}, 9), &draws);  // k-means has run
    quantizer->eval();
    const at::NoGradGuard no_grad;
    const at::Tensor x = noise({2, 30, c.dim}, 10);
    const Quantized result = quantizer->forward(x, nullptr);
    ASSERT_EQ(result.codes.sizes(), (std::vector<int64_t>{c.config.groups, 2, 30, 4})) << c.name;
    EXPECT_GE(result.codes.min().item<int64_t>(), 0) << c.name;
    EXPECT_LT(result.codes.max().item<int64_t>(), quantizer->codebook_size()) << c.name;
    EXPECT_TRUE(at::allclose(quantizer->decode(result.codes), result.vectors, 1e-4, 1e-5)) << c.name;
    EXPECT_EQ(result.losses.abs().max().item<double>(), 0) << c.name;

    // Stages that are missing and stages that are -1 add nothing; more stages come closer to x.
    double before = 1e30;
    for (int64_t stages = 1; stages <= 4; ++stages) {
      const at::Tensor fewer = result.codes.narrow(-1, 0, stages);
      at::Tensor dropped = result.codes.clone();
      dropped.narrow(-1, stages, 4 - stages).fill_(-1);
      EXPECT_TRUE(at::allclose(quantizer->decode(fewer), quantizer->decode(dropped))) << c.name;
      const double error = (quantizer->decode(fewer) - result.vectors).square().mean().item<double>();
      EXPECT_LE(error, before * 1.2) << c.name << ", stage " << stages;
      before = error;
    }
    EXPECT_LT(before, 1e-8) << c.name;
  }
}

// With as many beams as there are beginnings the search is exhaustive; with any number it loses nothing.
TEST(Quantizer, SearchFindsTheBestCodes) {
  QuantizerConfig config = config_of("vq");
  config.quantizers = 3;
  config.codebook_size = 7;
  const at::Tensor x = noise({2, 40, 5}, 3);
  const auto quantize = [&](int64_t beams) {
    config.search_beams = beams;
    Quantizer quantizer = make(config, 5);
    for (const auto& item : quantizer->named_buffers())
      if (item.key().ends_with("embedding"))
        item.value().copy_(noise(item.value().sizes(), item.key().size() + 8));
    quantizer->eval();
    const Quantized found = quantizer->forward(x, nullptr);
    EXPECT_TRUE(at::allclose(quantizer->decode(found.codes), found.vectors));
    EXPECT_EQ(found.losses.sizes(), at::IntArrayRef({1, 3}));
    at::Tensor every;  // [343, 5] what any three codes add up to
    for (int64_t i = 0; i < 343; ++i) {
      const at::Tensor codes = at::tensor({i / 49, i / 7 % 7, i % 7}, at::kLong).view({1, 1, 1, 3});
      const at::Tensor sum = quantizer->decode(codes).view({1, 5});
      every = every.defined() ? at::cat({every, sum}) : sum;
    }
    const at::Tensor least = std::get<0>(at::cdist(x.view({-1, 5}), every).min(1)).square();
    return std::pair{(found.vectors - x).square().sum(-1).flatten(), least};
  };
  const auto [greedy, least] = quantize(1);
  EXPECT_GT((greedy - least).max().item<double>(), 0.1);  // one code after the other is not the best
  EXPECT_LT((quantize(49).first - least).abs().max().item<double>(), 1e-4);
  EXPECT_LT(quantize(4).first.mean().item<double>(), greedy.mean().item<double>());
}

// In training beams leave less of x, and what passes them has the gradient of no quantizer at all; stages
// that are dropped stay out of the search.
TEST(Quantizer, BeamsInTraining) {
  const auto error = [](int64_t beams, int64_t used) {
    QuantizerConfig config = config_of("vq");
    config.training_beams = beams;
    config.dropout = true;
    Quantizer quantizer = make(config, 6);
    double last = 0;
    for (uint64_t step = 0; step < 3; ++step) {  // the first places the codes
      FixedStages draws(step, used - 1);
      const at::Tensor x = noise({2, 200, 6}, 30 + step).requires_grad_(),
                       pull = noise({2, 200, 6}, 40 + step);
      const Quantized result = quantizer->forward(x, &draws);
      const at::Tensor gradient = torch::autograd::grad({result.vectors}, {x}, {pull}, true)[0];
      EXPECT_LT((gradient - pull).abs().max().item<double>(), 1e-5);
      EXPECT_TRUE((result.codes.narrow(-1, used, 4 - used) == -1).all().item<bool>());
      EXPECT_GE(result.codes.narrow(-1, 0, used).min().item<int64_t>(), 0);
      EXPECT_EQ((result.losses != 0).sum().item<int64_t>(), used);
      last = (result.vectors - x).square().mean().item<double>();
    }
    return last;
  };
  for (const int64_t used : {2, 4}) EXPECT_LT(error(8, used), 0.97 * error(1, used)) << used;
  QuantizerConfig config = config_of("lfq");
  config.training_beams = 2;
  EXPECT_ANY_THROW(make(config, 6)) << "bits have no codes to look among";
}

TEST(Quantizer, DropoutObeysItsDraws) {
  for (const auto& [multiple, keep, drawn, used] : std::vector<std::array<int64_t, 4>>{{1, 0, 0, 1},
                                                                                       {1, 1, 2, 3},
                                                                                       {2, 0, 0, 2},
                                                                                       {2, 0, 2, 4},
                                                                                       {3, 1, 3, 6},
                                                                                       {4, 1, 1, 4},
                                                                                       {4, 1, 5, 7}}) {
    QuantizerConfig config = config_of("vq", 2);
    config.quantizers = 7;
    config.dropout = true;
    config.dropout_keep = keep;
    config.dropout_multiple_of = multiple;
    Quantizer quantizer = make(config, 8);
    FixedStages draws(3, drawn);
    const Quantized result = quantizer->forward(noise({1, 80, 8}, 11), &draws);
    EXPECT_EQ(draws.range, (std::pair<int64_t, int64_t>{keep, 7}));
    const at::Tensor in_use = (result.codes >= 0).all(0).all(0).all(0),
                     unused = (result.codes == -1).all(0).all(0).all(0);
    EXPECT_TRUE(in_use.narrow(0, 0, used).all().item<bool>()) << multiple << " " << drawn;
    EXPECT_TRUE(unused.narrow(0, used, 7 - used).all().item<bool>()) << multiple << " " << drawn;
    const at::Tensor initialised =
        at::stack({codebook(quantizer, 0).initialised, codebook(quantizer, 6).initialised});
    EXPECT_EQ(initialised[1].item<float>(), used == 7 ? 1 : 0) << "a stage that is not in use must not learn";
    quantizer->eval();
    EXPECT_GE(quantizer->forward(noise({1, 80, 8}, 12), nullptr).codes.min().item<int64_t>(), 0)
        << "no dropout in eval";
  }
}

double share_in_use(Quantizer& quantizer, const at::Tensor& x) {
  quantizer->eval();
  const double share =
      code_use(quantizer->forward(x, nullptr).codes, quantizer->codebook_size()).share.item<double>();
  quantizer->train();
  return share;
}

TEST(Codebook, KMeansAndRevivalFillIt) {
  const at::Tensor x = clusters(32, 2000, 8, 20);
  QuantizerConfig config = config_of("vq");
  config.quantizers = 1;
  config.codebook_size = 32;
  config.decay = 0.8;
  config.kmeans_init = false;
  config.dead_code_threshold = 0;
  Quantizer plain = make(config, 8);
  config.kmeans_init = true;
  Quantizer kmeans = make(config, 8);
  config.kmeans_init = false;
  config.dead_code_threshold = 2;
  Quantizer revived = make(config, 8);
  config.cosine = true;
  Quantizer cosine = make(config, 8);
  for (uint64_t step = 0; step < 30; ++step) {
    const at::Tensor batch = clusters(32, 500, 8, 30 + 2 * step);
    for (Quantizer* quantizer : {&plain, &kmeans, &revived, &cosine}) {
      SeededDraws draws(step);
      (*quantizer)->forward(batch, &draws);
    }
  }
  const double start = share_in_use(plain, x);
  EXPECT_GT(share_in_use(kmeans, x), start + 0.15);
  EXPECT_GT(share_in_use(revived, x), start + 0.2);
  EXPECT_GT(share_in_use(revived, x), 0.85);
  EXPECT_GT(share_in_use(cosine, x), 0.85);
  // Well placed codes are close to the points.
  revived->eval();
  EXPECT_LT((revived->forward(x, nullptr).vectors - x).square().mean().item<double>(),
            0.25 * x.square().mean().item<double>());
  EXPECT_NEAR(codebook(cosine).embedding.norm(2, {1}).min().item<double>(), 1, 1e-4)
      << "cosine codes have unit length";
}

TEST(Codebook, StaysAsItIsWhenNotLearning) {
  for (const bool stochastic : {false, true}) {
    QuantizerConfig config = config_of("vq");
    config.stochastic = stochastic;
    Quantizer quantizer = make(config, 6);
    SeededDraws draws(1);
    quantizer->forward(noise({1, 300, 6}, 50), &draws);
    const auto before = state_of(quantizer);
    SeededDraws more(2);
    quantizer->forward(noise({1, 300, 6}, 51), &more, /*update=*/false);
    EXPECT_TRUE(same(before, state_of(quantizer))) << "update = false";
    quantizer->eval();
    quantizer->forward(noise({1, 300, 6}, 52), nullptr);
    EXPECT_TRUE(same(before, state_of(quantizer))) << "eval";
    quantizer->train();
    quantizer->forward(noise({1, 300, 6}, 53), &more);
    EXPECT_FALSE(same(before, state_of(quantizer))) << "training must move the codebook";
  }
}

// Averages move the codes before the losses are made.
TEST(Codebook, CrossEntropyIsThatOfTheCodesThatWereChosenFrom) {
  for (const bool cosine : {false, true}) {
    QuantizerConfig config = config_of("vq");
    config.cross_entropy_commitment = true;
    config.cosine = cosine;
    Quantizer quantizer = make(config, 6);
    SeededDraws draws(1);
    quantizer->forward(noise({1, 300, 6}, 50), &draws);
    const at::Tensor x = noise({1, 300, 6}, 51).requires_grad_();
    std::vector<at::Tensor> losses, gradients;
    for (const bool update : {false, true}) {
      losses.push_back(quantizer->forward(x, &draws, update).losses);
      gradients.push_back(torch::autograd::grad({losses.back().sum()}, {x})[0]);
    }
    EXPECT_LT((losses[0] - losses[1]).abs().max().item<double>(), 1e-6);
    EXPECT_LT((gradients[0] - gradients[1]).abs().max().item<double>(), 1e-6);
  }
}

// audiolm-pytorch's gradient: the value and its softmax are of the codes before the move, the derivative of
// each distance is towards the code after it.
TEST(Codebook, TheGradientOfCrossEntropyCanBeThatOfTheMovedCodes) {
  QuantizerConfig config = config_of("vq");
  config.quantizers = 1;
  config.cross_entropy_commitment = config.commitment_gradient_of_moved = true;
  Quantizer quantizer = make(config, 6);
  SeededDraws draws(1);
  quantizer->forward(noise({1, 300, 6}, 50), &draws);
  const auto codes = [&] {
    return quantizer->named_buffers()["groups.0.stages.0.codebook.embedding"].clone();
  };
  const at::Tensor x = noise({1, 300, 6}, 51).requires_grad_(), rows = x[0].detach();
  const at::Tensor before = codes();
  const auto result = quantizer->forward(x, &draws);
  const at::Tensor after = codes();
  ASSERT_FALSE(at::equal(before, after));

  const at::Tensor distances = at::cdist(rows, before);  // [rows, size]
  const at::Tensor likelihood = at::log_softmax(-distances, -1);
  const at::Tensor chosen = result.codes.flatten().unsqueeze(1);
  EXPECT_NEAR(result.losses.sum().item<double>(), -likelihood.gather(1, chosen).mean().item<double>(), 1e-5);
  const at::Tensor pull = (at::zeros_like(distances).scatter_(1, chosen, 1) - likelihood.exp()) / 300;
  const at::Tensor wanted =
      ((pull / distances).unsqueeze(2) * (rows.unsqueeze(1) - after.unsqueeze(0))).sum(1);
  const at::Tensor gradient = torch::autograd::grad({result.losses.sum()}, {x})[0][0];
  EXPECT_LT((gradient - wanted).abs().max().item<double>(), 1e-6);
}

TEST(Codebook, IsPlacedOutsideTrainingOnlyWhenAskedTo) {
  const at::Tensor x = noise({1, 300, 6}, 54);
  for (const bool in_eval : {false, true}) {
    QuantizerConfig config = config_of("vq");
    config.kmeans_in_eval = in_eval;
    Quantizer quantizer = make(config, 6);
    quantizer->eval();
    const auto fresh = state_of(quantizer);
    quantizer->forward(x, nullptr);
    EXPECT_TRUE(same(fresh, state_of(quantizer))) << "there is nothing to draw rows with";
    SeededDraws draws(5);
    quantizer->forward(x, &draws);
    EXPECT_EQ(same(fresh, state_of(quantizer)), !in_eval);
    const auto placed = state_of(quantizer);
    quantizer->forward(noise({1, 300, 6}, 55), &draws);
    EXPECT_TRUE(same(placed, state_of(quantizer))) << "it does not follow what it sees";
  }
}

TEST(Codebook, SurvivesABatchThatIsNotFinite) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    for (const bool first : {true, false})
      for (const bool all : {true, false})
        for (const bool cosine : {true, false}) {
          QuantizerConfig config = config_of("vq");
          config.cosine = cosine;
          Quantizer quantizer = make(config, 6);
          SeededDraws draws(4);
          // The last stages see few codes of a small batch, so revival is at work in every step.
          if (!first) quantizer->forward(noise({1, 100, 6}, 60), &draws);
          at::Tensor broken = noise({1, 100, 6}, 61);
          (all ? broken : broken.select(1, 17)).fill_(bad);
          quantizer->forward(broken, &draws);
          for (const at::Tensor& buffer : state_of(quantizer))
            ASSERT_TRUE(at::isfinite(buffer).all().item<bool>())
                << "first " << first << " all " << all << " cosine " << cosine;
          for (uint64_t step = 0; step < 3; ++step) quantizer->forward(noise({1, 100, 6}, 62 + step), &draws);
          for (const at::Tensor& buffer : state_of(quantizer))
            ASSERT_TRUE(at::isfinite(buffer).all().item<bool>());
          EXPECT_GT(share_in_use(quantizer, noise({1, 400, 6}, 70)), 0.3)
              << "it must go on learning afterwards";
        }
}

TEST(Codebook, SharedIsOneAndSeparateAreMany) {
  QuantizerConfig config = config_of("vq");
  EXPECT_EQ(make(config, 6)->buffers().size(), 4u * 4u);
  config.shared_codebook = true;
  Quantizer quantizer = make(config, 6);
  EXPECT_EQ(quantizer->buffers().size(), 4u);
  SeededDraws draws(6);
  quantizer->forward(noise({1, 300, 6}, 80), &draws);
  quantizer->eval();
  const Quantized result = quantizer->forward(noise({1, 300, 6}, 81), nullptr);
  // All stages look up the same table.
  const at::Tensor& table = codebook(quantizer).embedding;
  at::Tensor sum = at::zeros({300, 6});
  for (int64_t stage = 0; stage < 4; ++stage)
    sum += table.index_select(0, result.codes[0][0].select(-1, stage));
  EXPECT_TRUE(at::allclose(sum, result.vectors[0], 1e-4, 1e-5));
}

TEST(Codebook, StochasticCodesAreAFunctionOfTheDraws) {
  QuantizerConfig config = config_of("vq");
  config.stochastic = true;
  config.temperature = 0.5;
  const auto codes = [&](uint64_t draws_key, double temperature) {
    config.temperature = temperature;
    Quantizer quantizer = make(config, 6);
    SeededDraws start(1);
    quantizer->forward(noise({1, 300, 6}, 90), &start);
    SeededDraws draws(draws_key);
    return quantizer->forward(noise({1, 300, 6}, 91), &draws).codes;
  };
  EXPECT_TRUE(at::equal(codes(7, 0.5), codes(7, 0.5)));
  EXPECT_FALSE(at::equal(codes(7, 0.5), codes(8, 0.5)));
  // Without temperature the nearest code is taken, whatever is drawn.
  EXPECT_TRUE(at::equal(codes(7, 0), codes(8, 0)));
}

TEST(Quantizer, RefusesWhatItCannotDo) {
  QuantizerConfig config = config_of("lfq");
  config.codebook_size = 100;
  EXPECT_ANY_THROW(make(config, 8));
  EXPECT_ANY_THROW(make(config_of("vq", 3), 8));
  Quantizer quantizer = make(config_of("vq"), 8);
  EXPECT_ANY_THROW(quantizer->forward(noise({1, 10, 8}, 1), nullptr)) << "training without draws";
  EXPECT_ANY_THROW(quantizer->decode(at::zeros({1, 2, 3, 5}, at::kLong))) << "more stages than there are";
}

}  // namespace quantizer_test
}  // namespace melete
