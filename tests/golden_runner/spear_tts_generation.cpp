// SPEAR-TTS: tokens that are drawn, searched for along beams, or drafted and judged; pairs made from speech.
#include <algorithm>
#include <filesystem>
#include <optional>

#include "core/base/error.h"
#include "io/pickled_tensors.h"
#include "spear_tts.h"
#include "systems/spear_tts/back_translation.h"
#include "systems/spear_tts/beam_search.h"
#include "systems/spear_tts/speculative.h"

namespace melete::golden {

using namespace spear_tts;
using nlohmann::ordered_json;

namespace {

GenerateConfig generate_config(const ordered_json& call, int64_t classes) {
  GenerateConfig config;
  config.sampling = foreign_filter(call, classes);
  config.sampling.temperature = value_or(call, "temperature", 1.0);
  config.sampling.guidance = value_or(call, "cond_scale", 1.0);
  config.longest = value_or(call, "max_length", int64_t{2048});
  config.as_upstream = true;
  return config;
}

BeamSearchConfig beam_config(const ordered_json& call) {
  BeamSearchConfig config;
  config.beam.beams = value_or(call, "beam_size", int64_t{4});
  config.beam.score_past_end = true;
  config.temperature = value_or(call, "temperature", 1.0);
  config.guidance = value_or(call, "cond_scale", 1.0);
  config.longest = value_or(call, "max_length", int64_t{2048});
  return config;
}

// The logits before each token of `tokens`, guided: [batch, n, classes]
at::Tensor expected_logits(TextToSemantic& model, const Source& source, Modality target,
                           const at::Tensor& tokens, double guidance) {
  const at::NoGradGuard no_grad;
  const Context context = model->encode(source);
  const at::Tensor before = tokens.narrow(1, 0, tokens.size(1) - 1);
  const at::Tensor seen = at::ones({tokens.size(0), tokens.size(1)}, at::kBool);
  const auto logits = [&](const Context& shown) {
    return model->vocabulary(target).logits(model->decode(before, target, shown, seen).values);
  };
  const at::Tensor with = logits(context);
  if (guidance == 1) return with;
  const at::Tensor without = logits({context.values, at::zeros_like(context.seen)});
  return without + (with - without) * guidance;
}

// True up to and with the first end of each row.
at::Tensor until_end(const at::Tensor& tokens, int64_t end) {
  const at::Tensor ends = tokens.eq(end).to(at::kLong);
  return (ends.cumsum(1) - ends).eq(0);
}

// Without guidance, as the cases have it. Upstream masks what follows an end only once all rows have ended:
// until then everything counts (`past_ends`).
at::Tensor log_probability(TextToSemantic& model, const Source& source, Modality target,
                           const at::Tensor& tokens, bool past_ends = false) {
  const at::Tensor logits = expected_logits(model, source, target, tokens, 1);
  const at::Tensor each = at::log_softmax(logits, -1).gather(2, tokens.clamp_min(0).unsqueeze(2)).squeeze(2);
  if (past_ends) return each.sum(1);
  return (each * until_end(tokens, model->vocabulary(target).end_id())).sum(1);
}

// Up to the shorter of the two, rows to their first ends: upstream may stop at another length.
void check_until_end(Checker& check, const std::string& label, const at::Tensor& got, const at::Tensor& want,
                     int64_t end) {
  const int64_t n = std::min(got.size(1), want.size(1));
  const at::Tensor right = want.narrow(1, 0, n), there = until_end(right, end);
  check.close(label, got.narrow(1, 0, n) * there, right * there);
}

struct Call {
  SpearModel spear;
  Source source;
  Modality target;
  int64_t end;
};

void check_speculative(const Case& c, Checker& check, Call& given) {
  const ordered_json& call = c.json.at("call");
  SpeculationConfig speculation;
  speculation.drafts = value_or(call, "spec_decode_gamma", int64_t{5});
  speculation.lenience = value_or(call, "spec_decode_lenience", 1.0);
  GenerateConfig config = generate_config(call, given.spear.model->speech->classes());
  require(config.sampling.temperature == 0, "[golden] draws of speculative decoding are not recorded");
  SpearDraws draws(c, "rand.");
  const at::Tensor plain = generate(given.spear.model, given.source, given.target, config, draws).tokens;
  check_until_end(check, "plain_greedy", plain, c.out("plain_greedy"), given.end);
  config.as_upstream = false;
  const at::Tensor quick =
      generate_speculatively(given.spear.model, given.source, config, speculation, draws).tokens;
  check_until_end(check, "speculative", quick, c.out("plain_greedy"), given.end);
  if (value_or(c.json, "upstream_equals_plain", false))
    check_until_end(check, "upstream_spec_decode", quick, c.out("upstream_spec_decode"), given.end);
}

void check_beams(const Case& c, Checker& check, Call& given) {
  const ordered_json& call = c.json.at("call");
  const BeamSearchConfig config = beam_config(call);
  const at::Tensor found = beam_search(given.spear.model, given.source, given.target, config).tokens;
  check.close("target", found, c.out("target"));
  if (c.has("out.log_prob_of_target"))
    check.close("log_prob_of_target", log_probability(given.spear.model, given.source, given.target, found),
                c.out("log_prob_of_target"));
  if (!c.has("out.greedy_target")) return;
  SpearDraws draws(c, "rand.");
  GenerateConfig greedy;
  greedy.sampling.temperature = 0;
  greedy.sampling.guidance = 1;  // the comparison is with plain greedy decoding
  greedy.longest = config.longest;
  const at::Tensor plain = generate(given.spear.model, given.source, given.target, greedy, draws).tokens;
  check_until_end(check, "greedy_target", plain, c.out("greedy_target"), given.end);
  if (!c.has("out.log_prob_of_greedy")) return;
  const at::Tensor& theirs = c.out("greedy_target");
  const bool masked = theirs.eq(given.end).any(1).all().item<bool>();
  check.close("log_prob_of_greedy",
              log_probability(given.spear.model, given.source, given.target, theirs, !masked),
              c.out("log_prob_of_greedy"));
}

void check_plain(const Case& c, Checker& check, Call& given) {
  const ordered_json& call = c.json.at("call");
  VocabularyImpl& vocabulary = given.spear.model->vocabulary(given.target);
  const GenerateConfig config = generate_config(call, vocabulary.classes());
  SpearDraws draws(c, "rand.");
  const at::Tensor tokens = generate(given.spear.model, given.source, given.target, config, draws).tokens;
  check.close("target", tokens, c.out("target"));
  if (c.has("out.target_mask"))
    check.close("target_mask", vocabulary.is_padding(tokens).logical_not(), c.out("target_mask"));
  if (c.has("out.step_logits")) {
    const at::Tensor wanted = c.out("step_logits").transpose(0, 1);
    const at::Tensor got =
        expected_logits(given.spear.model, given.source, given.target, tokens, config.sampling.guidance);
    const at::Tensor there = until_end(tokens, given.end).unsqueeze(2);  // ours are padded after that
    check.close("step_logits", got * there, wanted * there);
  }
}

}  // namespace

void check_spear_generation(const Case& c, Checker& check) {
  const ordered_json& call = c.json.at("call");
  expect_only(call,
              {"source_type", "target_type", "temperature", "filter_logits_fn", "filter_fn_kwargs",
               "max_length", "beam_search_decode", "spec_decode", "spec_decode_gamma", "spec_decode_lenience",
               "beam_size", "return_source", "return_target_mask", "cond_scale"});
  const Direction way = direction(call);
  Call given{
      spear_model(c, c.config), {c.in("source"), way.source, given_mask(c, "source_mask")}, way.target, -1};
  given.end = given.spear.model->vocabulary(way.target).end_id();
  if (c.has("out.source_with_eos"))
    check.close("source_with_eos", given.spear.model->vocabulary(way.source).with_end(given.source.ids),
                c.out("source_with_eos"));
  if (value_or(call, "spec_decode", false)) return check_speculative(c, check, given);
  if (value_or(call, "beam_search_decode", false)) return check_beams(c, check, given);
  check_plain(c, check, given);
}

namespace {

void check_model(const Case& c, Checker& check) {
  const bool forward = c.has("out.loss") || c.has("out.logits_no_loss") || c.has("out.logits");
  (forward ? check_spear_forward : check_spear_generation)(c, check);
}

std::optional<int64_t> id_of(const ordered_json& config, const char* name, std::optional<int64_t> otherwise) {
  if (!config.contains(name)) return otherwise;
  if (config[name].is_null()) return {};
  return config[name].get<int64_t>();
}

at::Tensor without(const at::Tensor& ids, std::optional<int64_t> padding) {
  return padding ? ids.masked_select(ids.ne(*padding)) : ids;
}

// Rows of a batch are padded with 0, which is a legal id, and keep it and their ends.
void check_dataset_generator(const Case& c, Checker& check) {
  const ordered_json& config = c.config;
  expect_only(config, {"model", "max_length", "beam", "beam_search_decode", "batch_size", "delimiter_id",
                       "audio_pad_id", "text_pad_id", "beam_size", "temperature", "cond_scale",
                       "filter_logits_fn", "filter_fn_kwargs"});
  SpearModel spear = spear_model(c, config.at("model"));
  const auto batch_size = value_or(config, "batch_size", int64_t{4});
  const int64_t delimiter = value_or(config, "delimiter_id", int64_t{-1});
  const auto audio_padding = id_of(config, "audio_pad_id", {}),
             text_padding = id_of(config, "text_pad_id", 0);
  const bool beams = value_or(config, "beam", value_or(config, "beam_search_decode", true));
  std::vector<at::Tensor> speech, rows;
  while (c.has(fmt::format("in.{}.semantic_ids", speech.size())))
    speech.push_back(c.in(fmt::format("{}.semantic_ids", speech.size())));
  SpearDraws draws(c, "rand.");
  for (size_t first = 0; first < speech.size(); first += static_cast<size_t>(batch_size)) {
    const auto last = std::min(speech.size(), first + static_cast<size_t>(batch_size));
    int64_t longest = 0;
    for (size_t i = first; i < last; ++i) longest = std::max(longest, speech[i].size(0));
    std::vector<at::Tensor> padded;
    for (size_t i = first; i < last; ++i)
      padded.push_back(at::constant_pad_nd(speech[i], {0, longest - speech[i].size(0)}, 0));
    const Source source{at::stack(padded), Modality::speech, {}};
    const at::Tensor texts =
        beams ? beam_search(spear.model, source, Modality::text, beam_config(config)).tokens
              : generate(spear.model, source, Modality::text,
                         generate_config(config, spear.model->text->classes()), draws)
                    .tokens;
    const at::Tensor read = spear.model->speech->with_end(source.ids);
    for (int64_t i = 0; i < texts.size(0); ++i)
      rows.push_back(pair_row(without(read[i], audio_padding), without(texts[i], text_padding), delimiter));
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string name = fmt::format("{}.pt", i);
    check.close("row." + name, rows[i], c.out("row." + name));
    const std::string path = c.folder + "/generated/" + name;
    if (std::filesystem::exists(path))
      check.close(name, read_torch_tensors(path).begin()->second, c.out("row." + name));
    if (!c.json.contains("read_back")) continue;
    const auto [first, second] = split_pair_row(rows[i], delimiter);
    const auto& wanted = c.json["read_back"].at(name);
    check.close(name + " speech", first, at::tensor(wanted[0].get<std::vector<int64_t>>()));
    check.close(name + " text", second, at::tensor(wanted[1].get<std::vector<int64_t>>()));
  }
}

const bool registered = register_case("spear-tts", "TextToSemantic", check_model) &&
                        register_case("spear-tts", "SemanticToTextDatasetGenerator", check_dataset_generator);

}  // namespace

}  // namespace melete::golden
