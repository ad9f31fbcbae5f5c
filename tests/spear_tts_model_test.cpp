// SPEAR-TTS: what must not change its tokens (cache, batch, padding, beams of one, drafts), what each loss
// counts, and its foreign names.
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>
#include <map>
#include <set>

#include "core/base/error.h"
#include "data/batch.h"
#include "foreign_files.h"
#include "generate/speculation.h"
#include "io/pickled_tensors.h"
#include "systems/spear_tts/back_translation.h"
#include "systems/spear_tts/beam_search.h"
#include "systems/spear_tts/decoder.h"
#include "systems/spear_tts/foreign_names.h"
#include "systems/spear_tts/generation_sound.h"
#include "systems/spear_tts/losses.h"
#include "systems/spear_tts/reading.h"
#include "systems/spear_tts/speculative.h"
#include "systems/spear_tts/task.h"
#include "systems/spear_tts/training.h"

namespace melete::spear_tts {

namespace spear_tts_model_test {

TextToSemanticConfig small_config() {
  TextToSemanticConfig config;
  config.speech.tokens = 24;
  config.text.tokens = 20;
  config.dim = 32;
  config.encoder_layers = 2;
  config.decoder_layers = 3;
  config.heads = 4;
  config.head_dim = 8;
  config.decoder_key_heads = 2;
  config.condition_drop = 0.2;
  config.early_exit_layer = 1;
  return config;
}

// Weights so large that tokens depend on what was read and written; ends come after some tokens.
TextToSemantic small_model(const TextToSemanticConfig& config = small_config(), int64_t seed = 1,
                           double end = 1.5) {
  torch::manual_seed(seed);
  TextToSemantic model(config);
  const at::NoGradGuard no_grad;
  for (auto& item : model->named_parameters())
    if (item.value().dim() >= 2)
      item.value().mul_(item.key().find("embedding") == std::string::npos ? 2.2 : 2.5);
  if (config.speech.end) model->speech->embedding->weight[-1].mul_(end);
  if (config.text.end) model->text->embedding->weight[-1].mul_(end);
  return model;
}

// Rows of random ids of these lengths, padded with -1.
at::Tensor random_ids(const std::vector<int64_t>& lengths, int64_t tokens, int64_t seed = 5) {
  torch::manual_seed(seed);
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  at::Tensor ids = at::randint(tokens, {static_cast<int64_t>(lengths.size()), longest}, at::kLong);
  for (size_t i = 0; i < lengths.size(); ++i) ids[static_cast<int64_t>(i)].slice(0, lengths[i]).fill_(-1);
  return ids;
}

Source text_source(const std::vector<int64_t>& lengths = {9, 4, 7}) {
  return {random_ids(lengths, 20), Modality::text, {}};
}

Source row_of(const Source& source, int64_t row) {
  const at::Tensor ids = source.ids[row];
  return {ids.masked_select(ids.ge(0)).unsqueeze(0), source.modality, {}};
}

GenerateConfig greedy(int64_t longest = 30, double guidance = 1) {
  GenerateConfig config;
  config.sampling.temperature = 0;
  config.sampling.guidance = guidance;
  config.longest = longest;
  return config;
}

// A row of tokens up to and with its end.
std::vector<int64_t> row_tokens(const at::Tensor& tokens, int64_t row) {
  std::vector<int64_t> result;
  for (int64_t i = 0; i < tokens.size(1) && tokens[row][i].item<int64_t>() >= 0; ++i)
    result.push_back(tokens[row][i].item<int64_t>());
  return result;
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

TEST(SpearTts, CacheChangesNothing) {
  const at::NoGradGuard no_grad;
  auto model = small_model();
  const Source source = text_source();
  const at::Tensor ids = random_ids({12, 12, 12}, 24, 8);
  const Context context = model->encode(source);
  const at::Tensor whole = model->speech->logits(model->decode(ids, Modality::speech, context).values);
  const Context nothing{context.values, at::zeros_like(context.seen)};
  const at::Tensor without = model->speech->logits(model->decode(ids, Modality::speech, nothing).values);
  for (const double guidance : {1.0, 2.5}) {
    const at::Tensor wanted = without + (whole - without) * guidance;
    Decoder decoder(*model, source, {Modality::speech, 13, 0, 1, guidance});
    for (int64_t i = 0; i < 13; ++i) {
      const at::Tensor before = i == 0 ? at::Tensor() : ids.select(1, i - 1);
      EXPECT_LT(largest_difference(decoder.next(before), wanted.select(1, i)), 1e-4) << i;
    }
  }
}

// Weights of less precision serve any number of rows, and each row as if it stood alone; they are near to
// those of float32, and not the same.
TEST(SpearTts, LessPreciseWeightsServeManyRows) {
  const at::NoGradGuard no_grad;
  for (const double guidance : {1.0, 1.7})
    for (const WeightStorage storage : {WeightStorage::bf16, WeightStorage::int8}) {
      torch::manual_seed(7);
      TextToSemanticConfig config = small_config();
      config.dim = 64;
      TextToSemantic model(config);
      model->eval();
      const Source source = text_source({9, 4, 7, 5, 8, 3, 9, 6, 4, 7, 5});
      DecoderOptions options;
      options.longest = 12;
      options.guidance = guidance;
      Decoder exact(*model, source, options);
      options.storage = storage;
      Decoder many(*model, source, options);
      const Source own{source.ids.narrow(0, 10, 1), source.modality, {}};
      Decoder one(*model, own, options);
      at::Tensor ids;
      int64_t same = 0, all = 0;
      for (int64_t i = 0; i < 10; ++i) {
        const at::Tensor expected = exact.next(ids), found = many.next(ids);
        const at::Tensor alone = one.next(ids.defined() ? ids.narrow(0, 10, 1) : ids);
        EXPECT_LT(largest_difference(found.narrow(0, 10, 1), alone), 1e-5) << i;
        EXPECT_GT(largest_difference(expected, found), 1e-5) << "the weights are those of float32";
        EXPECT_LT(largest_difference(expected, found), 0.05 * expected.abs().max().item<double>()) << i;
        ids = expected.argmax(-1);
        same += ids.eq(found.argmax(-1)).sum().item<int64_t>();
        all += ids.numel();
      }
      EXPECT_GT(same, 0.9 * static_cast<double>(all));
    }
}

// Single positions by packed weights, against the operators: with guidance, beams and fewer key heads.
TEST(SpearTts, PackedStepsChangeNothing) {
  for (const int64_t key_heads : {int64_t{0}, int64_t{1}})
    for (const double guidance : {1.0, 1.7}) {
      torch::manual_seed(5);
      TextToSemanticConfig config;
      config.speech.tokens = 24;
      config.text.tokens = 20;
      config.dim = 40;
      config.encoder_layers = config.decoder_layers = 2;
      config.heads = 2;
      config.head_dim = 20;
      config.decoder_key_heads = key_heads;
      config.condition_drop = 0.1;
      TextToSemantic model(config);
      model->eval();
      const Source source = text_source({9, 4});
      DecoderOptions options;
      options.longest = 12;
      options.rows_per_source = 2;
      options.guidance = guidance;
      Decoder packed(*model, source, options);
      options.by_operators = true;
      Decoder plain(*model, source, options);
      at::Tensor ids;
      for (int64_t i = 0; i < 10; ++i) {
        const at::Tensor expected = plain.next(ids), found = packed.next(ids);
        EXPECT_LT(largest_difference(expected, found), 2e-5) << i;
        ids = expected.argmax(-1);
        if (i == 2)
          for (Decoder* each : {&packed, &plain}) each->branch(at::tensor({1, 0, 3, 2}, at::kLong));
        if (i == 4)
          for (Decoder* each : {&packed, &plain}) each->branch(at::tensor({1, 1, 2, 2}, at::kLong));
        if (i == 7) {
          for (Decoder* each : {&packed, &plain}) each->keep_sources(at::tensor({1}, at::kLong));
          ids = ids.narrow(0, 2, 2);
        }
      }
    }
}

TEST(SpearTts, PositionsOfRowsMayDiffer) {
  const at::NoGradGuard no_grad;
  auto model = small_model();
  const Source source = text_source({5, 8});
  const at::Tensor ids = random_ids({10, 10}, 24, 8);
  const Context context = model->encode(source);
  const at::Tensor x = at::cat({model->speech->starts(2), model->speech->embed(ids)}, 1);
  const at::Tensor wanted = model->decoder->forward(x, {}, context).values;
  Cache cache = model->decoder->make_cache(context, 11, 1, false);
  const LayerRange all{0, 3};
  model->decoder->run(x.narrow(1, 0, 7), {0, 0}, all, cache);
  // Row 0 goes back to position 3, row 1 goes on at 6.
  const at::Tensor next = at::stack({x[0].narrow(0, 3, 4), x[1].narrow(0, 6, 4)});
  DecoderStep packed(*model->decoder, WeightStorage::float32);
  for (const at::Tensor& stream :
       {model->decoder->run(next, {3, 6}, all, cache), packed.forward(next, {3, 6}, all, cache)}) {
    const at::Tensor got = model->decoder->norm(stream);
    EXPECT_LT(largest_difference(got[0], wanted[0].narrow(0, 3, 4)), 1e-5);
    EXPECT_LT(largest_difference(got[1], wanted[1].narrow(0, 6, 4)), 1e-5);
  }
}

TEST(SpearTts, ARowIsTheSameWhateverStandsBesideIt) {
  const Source source = text_source({9, 4, 7, 1, 6});
  auto model = small_model();
  std::set<size_t> lengths;
  for (const double guidance : {1.0, 2.0})
    for (const double temperature : {0.0, 1.0}) {
      GenerateConfig config = greedy(40, guidance);
      config.sampling.temperature = temperature;
      config.sampling.filter = 0.5;
      RowDraws draws(3, "test", 5);
      const Generated together = generate(model, source, Modality::speech, config, draws);
      for (int64_t row = 0; row < 5; ++row) {
        RowDraws own(3, "test", 1, row);
        const Generated alone = generate(model, row_of(source, row), Modality::speech, config, own);
        EXPECT_EQ(row_tokens(together.tokens, row), row_tokens(alone.tokens, 0)) << row;
        EXPECT_NEAR(together.score[row].item<double>(), alone.score[0].item<double>(), 1e-3) << row;
        lengths.insert(row_tokens(alone.tokens, 0).size());
      }
    }
  EXPECT_GT(lengths.size(), 1u);  // else no row has ended before another
}

TEST(SpearTts, ScoreIsTheLogProbabilityOfTheTokens) {
  const at::NoGradGuard no_grad;
  auto model = small_model();
  const Source source = text_source();
  SeededDraws draws(1);
  GenerateConfig config;
  config.longest = 15;
  const Generated made = generate(model, source, Modality::speech, config, draws);
  BeamSearchConfig search;
  search.longest = 15;
  for (const Generated& result : {made, beam_search(model, source, Modality::speech, search)}) {
    const Context context = model->encode(source);
    const at::Tensor before = result.tokens.narrow(1, 0, result.tokens.size(1) - 1);
    const at::Tensor logits = model->speech->logits(model->decode(before, Modality::speech, context).values);
    const at::Tensor each =
        at::log_softmax(logits, -1).gather(2, result.tokens.clamp_min(0).unsqueeze(2)).squeeze(2);
    const at::Tensor wanted = (each * result.tokens.ge(0)).sum(1);
    EXPECT_LT(largest_difference(result.score, wanted), 1e-3);
  }
}

TEST(SpearTts, ABeamOfOneIsGreedy) {
  auto model = small_model();
  const Source source = text_source();
  SeededDraws draws(1);
  for (const double guidance : {1.0, 2.0}) {
    BeamSearchConfig config;
    config.beam.beams = 1;
    config.longest = 30;
    config.guidance = guidance;
    const at::Tensor beam = beam_search(model, source, Modality::speech, config).tokens;
    const at::Tensor plain = generate(model, source, Modality::speech, greedy(30, guidance), draws).tokens;
    for (int64_t row = 0; row < 3; ++row) EXPECT_EQ(row_tokens(beam, row), row_tokens(plain, row));
  }
}

TEST(SpearTts, BeamsOfSourcesDoNotMix) {
  auto model = small_model();
  const Source source = text_source({9, 4, 7, 1});
  for (const double exponent : {0.0, 0.8}) {
    BeamSearchConfig config;
    config.longest = 20;
    config.beam.length_exponent = exponent;
    const Generated together = beam_search(model, source, Modality::speech, config);
    for (int64_t row = 0; row < 4; ++row) {
      const Generated alone = beam_search(model, row_of(source, row), Modality::speech, config);
      EXPECT_EQ(row_tokens(together.tokens, row), row_tokens(alone.tokens, 0)) << row;
      EXPECT_NEAR(together.score[row].item<double>(), alone.score[0].item<double>(), 1e-3);
    }
  }
}

// With as many beams as there are sequences, the best of all is found.
TEST(SpearTts, WideBeamsFindTheLikeliest) {
  TextToSemanticConfig config = small_config();
  config.speech.tokens = 3;
  auto model = small_model(config, 3);
  const Source source = text_source({6});
  const int64_t n = 3, end = 3;
  const at::NoGradGuard no_grad;
  const Context context = model->encode(source);
  double best = -1e9;
  for (int64_t code = 0; code < 64; ++code) {
    const at::Tensor ids = at::tensor({code / 16, code / 4 % 4, code % 4}, at::kLong).unsqueeze(0);
    const at::Tensor logits =
        model->speech->logits(model->decode(ids.narrow(1, 0, n - 1), Modality::speech, context).values);
    const at::Tensor each = at::log_softmax(logits, -1)[0];
    double score = 0;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t token = ids[0][i].item<int64_t>();
      score += each[i][token].item<double>();
      if (token == end) break;
    }
    best = std::max(best, score);
  }
  BeamSearchConfig search;
  search.longest = n;
  search.beam.beams = 16;
  EXPECT_NEAR(beam_search(model, source, Modality::speech, search).score[0].item<double>(), best, 1e-4);
}

TEST(SpearTts, DraftsChangeNothingGreedy) {
  const Source source = text_source({9, 4, 7, 2});
  for (int64_t seed = 1; seed <= 3; ++seed)
    for (const int64_t exit : {1, 2, 3}) {
      TextToSemanticConfig config = small_config();
      config.early_exit_layer = exit;
      auto model = small_model(config, seed);
      {
        // A draft that is right now and then: the head's own layer is nearly nothing, and its logits are the
        // model's.
        const at::NoGradGuard no_grad;
        model->early_exit->feed_forward->output->weight.mul_(0.1);
        model->early_exit->output->weight.copy_(model->speech->embedding->weight);
      }
      for (const double guidance : {1.0, 2.0}) {
        SeededDraws draws(1);
        const at::Tensor plain =
            generate(model, source, Modality::speech, greedy(25, guidance), draws).tokens;
        for (const int64_t drafts : {1, 4}) {
          SpeculationReport report;
          const Generated quick =
              generate_speculatively(model, source, greedy(25, guidance), {drafts, 1}, draws, &report);
          for (int64_t row = 0; row < 4; ++row)
            EXPECT_EQ(row_tokens(quick.tokens, row), row_tokens(plain, row))
                << seed << " " << exit << " " << drafts << " " << row;
          EXPECT_GT(report.drafted, 0);
        }
      }
    }
}

// The distributions of counts differ by at most this share.
double total_variation(const std::map<std::vector<int64_t>, double>& a,
                       const std::map<std::vector<int64_t>, double>& b) {
  std::map<std::vector<int64_t>, double> difference = a;
  for (const auto& [key, share] : b) difference[key] -= share;
  double sum = 0;
  for (const auto& [key, value] : difference) sum += std::abs(value) / 2;
  return sum;
}

TEST(SpearTts, JudgedDraftsHaveTheRealDistribution) {
  torch::manual_seed(4);
  const int64_t rows = 200000, classes = 4;
  const at::Tensor p = at::softmax(at::randn({3, classes}), -1), q = at::softmax(at::randn({2, classes}), -1);
  const at::Tensor real = p.expand({rows, 3, classes}), quick = q.expand({rows, 2, classes});
  const at::Tensor drafts = at::stack({q[0].multinomial(rows, true), q[1].multinomial(rows, true)}, 1);
  SeededDraws draws(9);
  const DraftVerdict verdict = judge_samples(real, quick, drafts, draws);
  const at::Tensor none = verdict.accepted.eq(0), some = verdict.accepted.ge(1);
  const at::Tensor first = at::where(none, verdict.next, drafts.select(1, 0));
  const at::Tensor second = at::where(verdict.accepted.eq(1), verdict.next, drafts.select(1, 1));
  const auto shares = [&](const at::Tensor& tokens) {
    return tokens.bincount({}, classes).to(at::kFloat) / tokens.size(0);
  };
  EXPECT_LT(largest_difference(shares(first), p[0]), 0.005);
  EXPECT_LT(largest_difference(shares(second.masked_select(some)), p[1]), 0.005);
  EXPECT_LT(largest_difference(shares(verdict.next.masked_select(verdict.accepted.eq(2))), p[2]), 0.01);
}

TEST(SpearTts, DraftsChangeNothingInTheDistribution) {
  TextToSemanticConfig config = small_config();
  config.speech.tokens = 5;
  auto model = small_model(config, 2, 1);
  const int64_t rows = 4000;
  const Source source{text_source({6}).ids.expand({rows, 6}).contiguous(), Modality::text, {}};
  GenerateConfig sampling;
  sampling.longest = 3;
  sampling.sampling.temperature = 0.8;
  sampling.sampling.filter = 0;
  sampling.sampling.top_p = 0.9;
  const auto shares = [&](const Generated& made) {
    std::map<std::vector<int64_t>, double> result;
    for (int64_t row = 0; row < rows; ++row) result[row_tokens(made.tokens, row)] += 1.0 / rows;
    return result;
  };
  SeededDraws one(1), two(2), three(3);
  const auto plain = shares(generate(model, source, Modality::speech, sampling, one));
  const auto again = shares(generate(model, source, Modality::speech, sampling, two));
  SpeculationReport report;
  const auto quick = shares(generate_speculatively(model, source, sampling, {2, 1}, three, &report));
  EXPECT_GT(plain.size(), 5u);  // else there is no distribution to speak of
  EXPECT_LT(total_variation(plain, quick), 1.5 * total_variation(plain, again) + 0.02);
  EXPECT_GT(report.acceptance(), 0.02);
  EXPECT_LT(report.acceptance(), 0.98);
}

TEST(SpearTts, EarlyExitOfTheLastLayerIsAlwaysRight) {
  TextToSemanticConfig config = small_config();
  config.early_exit_layer = config.decoder_layers;
  auto model = small_model(config);
  const at::NoGradGuard no_grad;
  model->early_exit->feed_forward->output->weight.zero_();
  model->early_exit->feed_forward->output->bias.zero_();
  model->early_exit->output->weight.copy_(model->speech->embedding->weight);
  SeededDraws draws(1);
  SpeculationReport report;
  generate_speculatively(model, text_source(), greedy(20), {3, 1}, draws, &report);
  EXPECT_EQ(report.accepted, report.drafted);
}

TEST(SpearTts, GuidanceNeedsAModelThatLearnedIt) {
  TextToSemanticConfig config = small_config();
  config.condition_drop = 0;
  config.early_exit_layer = 0;
  auto model = small_model(config);
  SeededDraws draws(1);
  EXPECT_THROW(generate(model, text_source(), Modality::speech, greedy(5, 2), draws), Error);
  EXPECT_THROW(generate_speculatively(model, text_source(), greedy(5), {}, draws), Error);
}

// A loss over padded rows is the mean over their tokens alone.
TEST(SpearTts, PaddingCountsForNothing) {
  auto model = small_model();
  LossConfig config;
  config.alignment.weight = 0;
  const std::vector<int64_t> speech_lengths = {7, 3, 5}, text_lengths = {9, 4, 7};
  for (const int64_t padding : {-1, 0}) {
    TextToSemanticConfig sizes = small_config();
    sizes.speech.padding = sizes.text.padding = padding;
    TextToSemantic padded(sizes);
    load_state_dict(*padded, state_dict(*model));
    for (const Direction& direction : {kTextToSpeech, kSpeechToText, kSpeechToSpeech}) {
      const auto ids = [&](Modality modality, int64_t seed) {
        const bool speech = modality == Modality::speech;
        const at::Tensor made = random_ids(speech ? speech_lengths : text_lengths, speech ? 23 : 19, seed);
        return at::where(made.lt(0), made, made + 1);  // 0 may be padding
      };
      const at::Tensor source = ids(direction.source, 1), target = ids(direction.target, 2);
      const auto as_padded = [&](const at::Tensor& each) { return each.masked_fill(each.lt(0), padding); };
      const at::Tensor together =
          pair_losses(padded, {as_padded(source), as_padded(target), direction, {}, {}}, config, {}).total;
      double sum = 0, count = 0;
      for (int64_t row = 0; row < 3; ++row) {
        const auto alone = [&](const at::Tensor& each) {
          return each[row].masked_select(each[row].ge(0)).unsqueeze(0);
        };
        const auto tokens = static_cast<double>(alone(target).size(1) + 1);  // and the end
        sum += tokens * pair_losses(model, {alone(source), alone(target), direction, {}, {}}, config, {})
                            .total.item<double>();
        count += tokens;
      }
      EXPECT_NEAR(together.item<double>(), sum / count, 1e-4);
    }
  }
}

TEST(SpearTts, DeletionsAreAShareOfEachRow) {
  auto model = small_model();
  const std::vector<int64_t> lengths = {12, 5, 1, 9};
  const at::Tensor ids = random_ids(lengths, 24);
  SeededDraws draws(2);
  DeletionConfig config;
  const Damaged damaged = damage(ids, *model->speech, config, draws);
  for (int64_t row = 0; row < 4; ++row) {
    const int64_t length = lengths[static_cast<size_t>(row)];
    const auto deleted = static_cast<int64_t>(std::ceil(0.6 * static_cast<double>(length) - 1e-6));
    EXPECT_EQ(damaged.deleted[row].sum().item<int64_t>(), deleted);
    EXPECT_EQ(row_tokens(damaged.target, row).size(), static_cast<size_t>(deleted));
    EXPECT_EQ(row_tokens(damaged.source, row).size(), static_cast<size_t>(length - deleted));
    const at::Tensor own = ids[row].masked_select(damaged.deleted[row]);
    EXPECT_TRUE(own.equal(damaged.target[row].narrow(0, 0, deleted)));  // in order
  }
  config.reconstruct = true;
  config.mask_token = 7;
  const Damaged masked = damage(ids, *model->speech, config, draws);
  EXPECT_TRUE(masked.target.equal(ids));
  EXPECT_TRUE(masked.source.equal(ids.masked_fill(masked.deleted, 7)));
  EXPECT_FALSE(masked.deleted.logical_and(ids.lt(0)).any().item<bool>());
  config.reconstruct = false;
  EXPECT_THROW(damage(ids, *model->speech, config, draws), Error);
}

TEST(SpearTts, EveryPositionIsDeletedEquallyOften) {
  SeededDraws draws(3);
  const at::Tensor eligible = at::arange(8).lt(at::tensor({8, 5}, at::kLong).unsqueeze(1));
  at::Tensor counts = at::zeros({2, 8});
  for (int64_t i = 0; i < 4000; ++i) counts += random_subset(eligible, 0.4, draws).to(at::kFloat);
  EXPECT_LT(largest_difference(counts[0] / 4000, at::full({8}, 4.0 / 8)), 0.05);  // ceil(3.2)
  EXPECT_LT(largest_difference(counts[1].narrow(0, 0, 5) / 4000, at::full({5}, 2.0 / 5)), 0.05);
}

TEST(SpearTts, DroppedSourcesAreNotSeen) {
  auto model = small_model();
  LossConfig config;
  config.alignment.weight = 0;
  const at::Tensor target = random_ids({6, 6}, 24);
  LossPass pass;
  SeededDraws draws(1);
  pass.draws = &draws;
  pass.condition_drop = 1;
  const auto loss = [&](int64_t seed) {
    return pair_losses(model, {random_ids({5, 5}, 20, seed), target, kTextToSpeech, {}, {}}, config, pass)
        .total.item<double>();
  };
  EXPECT_EQ(loss(1), loss(2));
  pass.condition_drop = 0;
  EXPECT_NE(loss(1), loss(2));
}

TEST(SpearTts, AlignmentIsZeroForWhatIsAlikeInTheSameWay) {
  const at::Tensor rows = at::randn({4, 6});
  EXPECT_NEAR(alignment_loss(rows, rows * 3).item<double>(), 0, 1e-10);
  EXPECT_GT(alignment_loss(rows, at::randn({4, 6})).item<double>(), 1e-3);
  EXPECT_EQ(alignment_loss(at::randn({1, 6}), at::randn({1, 6})).item<double>(), 0);
}

// Fewest changes of one character from one text to the other, by all ways there are.
int64_t edits(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return static_cast<int64_t>(a.size() + b.size());
  std::vector<std::vector<int64_t>> least(a.size() + 1, std::vector<int64_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i)
    for (size_t j = 0; j <= b.size(); ++j)
      least[i][j] = i == 0 || j == 0 ? static_cast<int64_t>(i + j)
                                     : std::min({least[i - 1][j] + 1, least[i][j - 1] + 1,
                                                 least[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
  return least[a.size()][b.size()];
}

std::unique_ptr<SpearTask> small_task(const Direction& direction, const TaskConfig& config = {}) {
  TextToSemanticConfig model = small_config();
  model.text.tokens = ByteTokenizer().vocabulary();
  torch::manual_seed(2);
  auto task = std::make_unique<SpearTask>("some", direction, model, config, std::make_shared<ByteTokenizer>(),
                                          nlohmann::ordered_json::object());
  task->model().eval();
  return task;
}

std::map<std::string, double> validated(SpearTask& task, const Batch& batch, int64_t number) {
  const at::NoGradGuard no_grad;
  SeededDraws draws(1);
  StepContext context;
  context.training = false;
  context.micro_batch = number;
  context.draws = &draws;
  std::map<std::string, double> figures;
  for (const auto& [name, value] : task.validate(batch, context).named) figures[name] = value.item<double>();
  return figures;
}

// Errors of validation, against what the model reads in each item by itself, counted anew.
TEST(SpearTts, ValidationCountsReadingErrors) {
  const at::NoGradGuard no_grad;
  TaskConfig config;
  config.read_items = 5;
  auto task = small_task(kSpeechToText, config);
  TextToSemantic& model = task->transformer();
  const ByteTokenizer bytes;
  Batch batch;
  const std::vector<std::string> truth = {"the cat sat", "on", "a mat"};
  batch.set("semantic", random_ids({7, 5, 9}, 24));
  std::vector<Item> rows(3);
  for (size_t i = 0; i < 3; ++i) rows[i].add("ids", at::tensor(bytes.pieces(truth[i]), at::kLong));
  batch.set("text", collate(rows)["ids"]);
  batch.set_words("text", truth);
  int64_t errors[2] = {}, of[2] = {};  // of the first batch's three items, and of the second's first two
  for (int64_t row = 0; row < 3; ++row) {
    const Source source = row_of({batch["semantic"], Modality::speech, {}}, row);
    RowDraws draws(0, "none", 1);
    std::vector<int64_t> tokens =
        row_tokens(generate(model, source, Modality::text, greedy(512), draws).tokens, 0);
    if (!tokens.empty() && tokens.back() == model->text->end_id()) tokens.pop_back();
    const auto number = static_cast<size_t>(row);
    const std::string read = bytes.text(tokens);
    for (const int64_t batch_number : {0, 1}) {
      if (batch_number == 1 && row == 2) continue;  // five items are read, three of them in the first batch
      errors[batch_number] += character_errors(read, truth[number]).errors;
      of[batch_number] += static_cast<int64_t>(truth[number].size());
    }
    if (std::all_of(read.begin(), read.end(), [](char c) { return c > 0; })) {  // edits() knows bytes alone
      EXPECT_EQ(character_errors(read, truth[number]).errors, edits(read, truth[number]));
    }
  }
  for (const int64_t number : {0, 1}) {
    const auto figures = validated(*task, batch, number);
    ASSERT_TRUE(figures.count("character_error"));
    EXPECT_NEAR(figures.at("character_error"),
                static_cast<double>(errors[number]) / static_cast<double>(of[number]), 1e-4);
    EXPECT_TRUE(figures.count("word_error"));
  }
  EXPECT_FALSE(validated(*task, batch, 2).count("character_error"));
}

TEST(SpearTts, ReadingErrorsAreThoseCountedByHand) {
  EXPECT_EQ(character_errors("kitten", "sitting").errors, 3);
  EXPECT_EQ(character_errors("kitten", "sitting").of, 7);
  EXPECT_EQ(character_errors("", "abc").errors, 3);
  EXPECT_EQ(character_errors("abcd", "").of, 0);
  EXPECT_EQ(character_errors("gr\u00fcn", "grun").errors, 1);  // one character, though two bytes
  EXPECT_EQ(word_errors("the cat  sat", "the mat sat down").errors, 2);
  EXPECT_EQ(word_errors("the cat  sat", "the mat sat down").of, 4);
  ReadingErrors both = word_errors("a", "a b");
  both += word_errors("x y", "x y");
  EXPECT_EQ(both.share(), 0.25);
}

// What is trained is what is held out: with the early exit's loss, too.
TEST(SpearTts, ValidationHasTheEarlyExitsLoss) {
  auto task = small_task(kTextToSpeech);
  Batch batch;
  batch.set("semantic", random_ids({7, 5, 9}, 24));
  batch.set("text", random_ids({4, 6, 5}, 250, 6));
  batch.set_words("text", {"a", "b", "c"});
  const auto figures = validated(*task, batch, 0);
  ASSERT_TRUE(figures.count("early_exit"));
  EXPECT_NEAR(figures.at("loss"),
              figures.at("speech") + figures.at("early_exit") + 0.1 * figures.at("alignment"), 1e-5);
}

// A fine stage goes on from the voice's fine codes, not only from its coarse ones.
TEST(SpearTts, TheVoiceReachesTheFineCodes) {
  const at::NoGradGuard no_grad;
  const auto stage = [](auto& config) {
    config.stage.transformer.dim = 32;
    config.stage.transformer.depth = 2;
    config.stage.transformer.heads = 4;
    config.stage.transformer.head_dim = 8;
    config.stage.transformer.condition = "none";
  };
  torch::manual_seed(4);
  CoarseConfig of_coarse;
  stage(of_coarse);
  of_coarse.semantic_tokens = 20;
  of_coarse.codebook_size = 16;
  of_coarse.quantizers = 2;
  CoarseTransformer coarse(of_coarse);
  FineConfig of_fine;
  stage(of_fine);
  of_fine.codebook_size = 16;
  of_fine.coarse_quantizers = 2;
  of_fine.fine_quantizers = 3;
  FineTransformer fine(of_fine), none(nullptr);
  for (at::Tensor& parameter : fine->parameters()) parameter.mul_(3);
  coarse->eval();
  fine->eval();
  const at::Tensor tokens = random_ids({9}, 20);
  StageVoice voice;
  voice.tokens = random_ids({5}, 20, 3);
  voice.codes = random_ids({5, 5, 5, 5, 5, 5}, 16, 4).unsqueeze(0);  // [1, 6 frames, 2 + 3 quantizers]
  const at::Tensor one = stage_codes(coarse, fine, tokens, voice, 8, 1);
  ASSERT_EQ(one.size(2), 5);
  EXPECT_LE(one.size(1), 8);
  EXPECT_TRUE(stage_codes(coarse, none, tokens, voice, 8, 1).equal(one.narrow(2, 0, 2)));
  voice.codes = voice.codes.clone();
  voice.codes.narrow(2, 2, 3).copy_((voice.codes.narrow(2, 2, 3) + 7).remainder(16));
  const at::Tensor other = stage_codes(coarse, fine, tokens, voice, 8, 1);
  EXPECT_TRUE(other.narrow(2, 0, 2).equal(one.narrow(2, 0, 2)));
  EXPECT_FALSE(other.narrow(2, 2, 3).equal(one.narrow(2, 2, 3))) << "the voice's fine codes change nothing";
}

TEST(SpearTts, EachTrainingMovesItsOwnParts) {
  auto model = small_model();
  const auto parts = [&](const Direction& direction, int64_t frozen) {
    std::set<std::string> names;
    for (const auto& [name, tensor] : trained_parameters(*model, direction, frozen)) {
      const size_t dots = name.starts_with("encoder.layers.") ? 2 : 0;
      size_t end = 0;
      for (size_t i = 0; i <= dots; ++i) end = name.find('.', end + 1);
      names.insert(name.substr(0, end));
    }
    return names;
  };
  using Names = std::set<std::string>;
  EXPECT_EQ(parts(kSpeechToSpeech, 2), (Names{"speech", "text", "encoder", "encoder.layers.0",
                                              "encoder.layers.1", "decoder", "early_exit"}));
  EXPECT_EQ(parts(kSpeechToText, 2), (Names{"text", "decoder", "early_exit"}));
  EXPECT_EQ(parts(kTextToSpeech, 1), (Names{"text", "encoder", "encoder.layers.1", "early_exit"}));
  EXPECT_THROW(parts({Modality::text, Modality::text}, 1), Error);
}

TEST(SpearTts, RatesOfUpstreamCanBeAskedForInAnyOrder) {
  UpstreamRates rates(3e-4, 1e-5, 3, 20);
  std::vector<double> forward;
  for (int64_t i = 0; i < 30; ++i) forward.push_back(rates.rate(i));
  for (int64_t i = 29; i >= 0; --i) EXPECT_EQ(rates.rate(i), forward[static_cast<size_t>(i)]);
}

TEST(SpearTts, PairsAreWithoutPaddingAndEnds) {
  auto model = small_model();
  const at::Tensor speech = random_ids({5, 3}, 24);
  const at::Tensor texts = at::tensor({1, 2, 20, -1, 4, 5, 6, 7}, at::kLong).view({2, 4});
  const auto pairs = translated_pairs(*model, speech, {texts, at::tensor({-1.5, -2.0}, at::kFloat)});
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_TRUE(pairs[0].speech.equal(speech[0]));
  EXPECT_TRUE(pairs[1].speech.equal(speech[1].narrow(0, 0, 3)));
  EXPECT_TRUE(pairs[0].text.equal(at::tensor({1, 2}, at::kLong)));
  EXPECT_EQ(pairs[1].score, -2);
  const at::Tensor row = pair_row(pairs[0].speech, pairs[0].text, -1);
  const auto [first, second] = split_pair_row(row, -1);
  EXPECT_TRUE(first.equal(pairs[0].speech) && second.equal(pairs[0].text));
  EXPECT_THROW(split_pair_row(pairs[0].speech, -1), Error);
}

TEST(SpearTts, ForeignStateGoesThereAndBack) {
  auto model = small_model();
  const TensorMap state = state_dict(*model);
  EXPECT_EQ(state.count("to_logits.speech.weight"), 1u);
  TextToSemantic other(small_config());
  load_state_dict(*other, state);
  for (const auto& [name, tensor] : state_dict(*other)) EXPECT_TRUE(tensor.equal(state.at(name))) << name;
  const auto refuses = [&](const std::function<void(TensorMap&)>& change, const std::string& words) {
    TensorMap broken = state;
    change(broken);
    EXPECT_NE(testing::error_of([&] { load_state_dict(*other, broken); }).find(words), std::string::npos);
  };
  refuses([](TensorMap& map) { map.erase("start_token.text"); }, "start_token.text");
  refuses([](TensorMap& map) { map["start_token.text"] = at::zeros({3}); }, "[3]");
  refuses([](TensorMap& map) { map["more"] = at::zeros({3}); }, "more");
  refuses([](TensorMap& map) { map["to_logits.text.weight"] = map["to_logits.text.weight"] + 1; }, "differ");
  TensorMap with_tokenizer = state;
  with_tokenizer["wav2vec.model.weight"] = at::zeros({3});
  load_state_dict(*other, with_tokenizer);
}

// The three packages that upstream's trainers wrote: their models, and the order of their optimisers.
TEST(SpearTts, ForeignFilesFit) {
  const std::string folder = std::string(MELETE_SOURCE_DIR) + "/tests/golden/spear-tts/checkpoints/";
  const std::map<std::string, Direction> packages = {{"speech.speech.2", kSpeechToSpeech},
                                                     {"semantic.text.2", kSpeechToText},
                                                     {"text.semantic.2", kTextToSpeech}};
  for (const auto& [name, direction] : packages) {
    std::ifstream about(folder + name + ".json");
    const auto json = nlohmann::ordered_json::parse(about);
    TextToSemantic model(foreign_settings(json.at("model")).model);
    TensorMap state;
    for (const auto& [key, tensor] : read_torch_tensors(folder + name + ".pt"))
      if (key.starts_with("model.")) state[key.substr(6)] = tensor;
    load_state_dict(*model, state);
    const TensorMap back = state_dict(*model);
    EXPECT_EQ(back.size(), state.size());
    for (const auto& [key, tensor] : state) EXPECT_TRUE(back.at(key).equal(tensor)) << key;
    EXPECT_EQ(foreign_parameters(*model, direction, 2).in_optimiser,
              json.at("optimizer_parameter_order").get<std::vector<std::string>>());
  }
}

}  // namespace spear_tts_model_test

}  // namespace melete::spear_tts
