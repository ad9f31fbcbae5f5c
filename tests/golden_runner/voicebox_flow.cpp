// ConditionalFlowMatcherWrapper: the loss and sampling, from features or from sound.
#include "core/base/error.h"
#include "generate/runge_kutta.h"
#include "io/resample_audio.h"
#include "spear_tts.h"
#include "systems/voicebox/masks.h"
#include "voicebox.h"

namespace melete::golden::voicebox_flow_cases {

namespace {

using nlohmann::ordered_json;

constexpr double kFixedSteps = 1e-3, kAdaptiveSteps = 1e-2;  // of what sampling ends in

// Upstream's wrapper with its parts.
struct Wrapper {
  explicit Wrapper(const Case& c)
      : weights(weights_of(c, "voicebox.")),
        prefix(below(c.weights, "voicebox.").empty() ? "" : "voicebox.") {
    const TensorMap audio = below(weights, "audio_enc_dec.");
    if (!audio.empty()) features = encodec_vocos(c, audio);
    network = voicebox_network(c, c.config.at("voicebox"), weights, features ? features->dim() : 0);
  }

  TensorMap weights;
  std::string prefix;  // of the network's names
  std::unique_ptr<EncodecVocos> features;
  voicebox::Voicebox network{nullptr};
};

// Sound in the case comes at a rate of its own, or at the codec's.
int64_t audio_rate(const Case& c, const Wrapper& wrapper) {
  return c.has("in.input_sampling_rate") ? c.in("input_sampling_rate").item<int64_t>()
                                         : wrapper.features->rate_hz();
}

at::Tensor encoded(const Case& c, Checker& check, const Wrapper& wrapper, const at::Tensor& audio) {
  const int64_t own = wrapper.features->rate_hz();
  const at::Tensor resampled = resample_audio(audio.flatten(1), audio_rate(c, wrapper), own);
  const std::string name = fmt::format("audio_resampled_{}k", own / 1000);
  if (c.has("out." + name) && audio.is_same(c.in("audio"))) check.close(name, resampled, c.out(name));
  return wrapper.features->encode(resampled);
}

void check_loss(const Case& c, Checker& check) {
  Wrapper wrapper(c);
  const auto config = voicebox_pytorch::flow_matching_config(c.config, c.config.at("voicebox"));
  voicebox::FlowBatch batch;
  batch.frames = optional_input(c, "x1");
  batch.context = optional_input(c, "cond");
  if (c.has("in.audio")) batch.frames = encoded(c, check, wrapper, c.in("audio"));
  if (c.has("in.cond_audio")) batch.context = encoded(c, check, wrapper, c.in("cond_audio"));
  if (c.has("out.x1")) check.close("x1", batch.frames, c.out("x1"));
  if (c.has("out.cond")) check.close("cond", batch.context, c.out("cond"));
  if (c.has("out.wav2vec_input_16k"))
    check.close("wav2vec_input_16k", resample_audio(c.in("audio").flatten(1), audio_rate(c, wrapper), 16000),
                c.out("wav2vec_input_16k"));
  for (const char* ids : {"semantic_token_ids", "phoneme_ids"})
    if (c.has(std::string("in.") + ids)) batch.tokens = c.in(ids);
  // The stand-in for wav2vec is not here; what it said is.
  if (!batch.tokens.defined() && c.has("out.semantic_token_ids")) batch.tokens = c.out("semantic_token_ids");
  batch.hidden = optional_input(c, "cond_mask");
  batch.valid = optional_input(c, "mask");

  VoiceboxDraws draws(c, "", config.hidden_share_low, config.hidden_share_high);
  const auto losses = voicebox::flow_matching_losses(wrapper.network, batch, config, draws);
  if (c.has("out.span_mask")) check.close("span_mask", losses.hidden, c.out("span_mask"));
  if (c.has("out.cond_drop_mask")) check.close("cond_drop_mask", losses.dropped, c.out("cond_drop_mask"));
  check.close("loss", losses.total, c.out("loss"));
  losses.total.backward();
  check_gradients(c, check, *wrapper.network, wrapper.prefix);
}

// Durations first, where there is a predictor; -> the ids of the frames
at::Tensor ids_by_duration(const Case& c, Checker& check, const at::Tensor& context, int64_t latent_dim) {
  const ordered_json& arguments = c.config.at("duration_predictor");
  voicebox::DurationPredictor predictor(voicebox_pytorch::duration_config(arguments, latent_dim));
  voicebox_pytorch::load(*predictor, below(c.weights, "duration_predictor."), c.name);
  const auto shares = arguments.value("frac_lengths_mask", std::vector<double>{0.1, 1});
  VoiceboxDraws draws(c, "dp_", shares[0], shares[1]);
  voicebox::DurationInput input;
  input.phonemes = c.in("phoneme_ids");
  input.condition = context;
  const int64_t batch = context.size(0), frames = context.size(1);
  if (c.has("rand.dp_frac_lengths"))
    input.hidden =
        voicebox::span_mask(at::full({batch}, frames, at::kLong), frames, shares[0], shares[1], draws);
  else
    input.hidden =
        voicebox::chance_mask({batch, frames}, arguments.value("p_drop_prob", 0.2), "bernoulli", draws);
  if (c.has("out.dp_cond_mask")) check.close("dp_cond_mask", input.hidden, c.out("dp_cond_mask"));
  const at::Tensor durations = predictor->guided(input, 1);
  if (c.has("out.durations")) check.close("durations", durations, c.out("durations"));
  const at::Tensor ids = voicebox::repeat_as_upstream(input.phonemes, durations);
  if (c.has("out.aligned_phoneme_ids")) check.close("aligned_phoneme_ids", ids, c.out("aligned_phoneme_ids"));
  return ids;
}

// How many frames they make of so many tokens: their ratio of rates is upside down.
int64_t frames_as_upstream(int64_t tokens, const Wrapper& wrapper) {
  const double tokens_per_second = 16000.0 / 320, frames_per_second = wrapper.features->frames_per_second();
  return voicebox::frames_of_tokens(tokens, frames_per_second, tokens_per_second);
}

// What a TextToSemantic says of `in.text_token_ids`; recorded where its weights or its draws are not there.
struct Said {
  at::Tensor tokens, seen;  // int64, bool [batch, n]
};
Said said_by_text(const Case& c, Checker& check) {
  Said said;
  const auto settings = c.config.find("text_to_semantic");
  const TensorMap weights = below(c.weights, "text_to_semantic.");
  const bool greedy = c.json.value("temperature", 1.0) == 0;
  if (settings != c.config.end() && settings->is_object() && !weights.empty() &&
      (greedy || c.has("rand.gumbel_uniform"))) {
    ordered_json arguments = *settings;
    arguments.erase("wav2vec");
    Case alone = c;
    alone.weights = weights;
    SpearModel spear = spear_model(alone, arguments);
    spear_tts::GenerateConfig how;
    how.sampling = spear_tts::foreign_filter(c.json, spear.model->speech->classes());
    how.sampling.temperature = greedy ? 0 : 1;
    how.sampling.guidance = 1;
    how.longest = c.json.value("max_semantic_token_ids", int64_t{2048});
    how.as_upstream = true;
    SpearDraws draws(c, "rand.");
    said.tokens =
        spear_tts::generate(spear.model,
                            {c.in("text_token_ids"), spear_tts::Modality::text, given_mask(c, "source_mask")},
                            spear_tts::Modality::speech, how, draws)
            .tokens;
    said.seen = spear.model->speech->is_padding(said.tokens).logical_not();
    if (c.has("out.semantic_token_ids"))
      check.close("semantic_token_ids", said.tokens, c.out("semantic_token_ids"));
  } else {
    said.tokens = c.out("semantic_token_ids");
    said.seen = said.tokens.ne(-1);
  }
  for (const char* name : {"target_mask", "semantic_mask", "self_attn_mask"}) {
    const std::string key = std::string("out.") + name;
    if (c.has(key)) said.seen = c.get(key).to(at::kBool);
  }
  return said;
}

// The times at which a solver asked for the flow. Those that choose their steps judge errors of the size of
// rounding, so that a step more or less may be taken towards the end.
void check_times(const Case& c, Checker& check, const std::vector<at::Tensor>& asked, bool adaptive) {
  const auto calls = static_cast<int64_t>(asked.size());
  const int64_t slack = adaptive ? 7 : 0;  // stages of a step
  if (const auto told = c.json.find("num_function_evaluations"); told != c.json.end())
    if (const auto want = told->get<int64_t>(); std::abs(want - calls) > slack)
      check.fail(fmt::format("the flow was asked {} times, upstream asked {} times", calls, want));
  if (!c.has("out.times_of_calls")) return;
  const at::Tensor& want = c.out("times_of_calls");
  const int64_t rows = want.dim() == 2 ? want.size(1) : 1;
  std::vector<at::Tensor> each;
  for (const at::Tensor& times : asked) each.push_back(times.expand({rows}));
  const at::Tensor got = at::stack(each).view({calls, rows});
  // Where the counts differ, the beginning must still be the same.
  const int64_t compared = calls == want.size(0) ? calls : std::min<int64_t>(calls, want.size(0) / 2);
  check.close("times_of_calls", got.narrow(0, 0, compared), want.reshape({-1, rows}).narrow(0, 0, compared),
              adaptive ? kAdaptiveSteps : kFixedSteps);
}

void check_sample(const Case& c, Checker& check) {
  Wrapper wrapper(c);
  wrapper.network->eval();
  at::Tensor context = optional_input(c, "cond");
  if (c.has("in.cond_audio")) context = wrapper.features->encode(c.in("cond_audio").flatten(1));
  voicebox::Condition condition;
  condition.tokens = optional_input(c, "semantic_token_ids");
  if (!condition.tokens.defined() && c.has("in.text_token_ids")) {
    const Said said = said_by_text(c, check);
    condition.tokens = said.tokens;
    condition.valid = said.seen;
  }
  if (c.config.contains("duration_predictor") && c.has("in.phoneme_ids"))
    condition.tokens = ids_by_duration(c, check, context, wrapper.features ? wrapper.features->dim() : 0);
  if (condition.tokens.defined()) {
    const int64_t tokens = condition.tokens.size(1);
    const bool by_rate = c.config.contains("text_to_semantic") && !c.config["text_to_semantic"].is_null();
    const int64_t frames = by_rate && context.defined() ? frames_as_upstream(tokens, wrapper) : tokens;
    context = context.defined()
                  ? voicebox::with_length(context, frames)
                  : at::zeros({condition.tokens.size(0), frames, wrapper.network->config().frame_dim});
  }
  if (c.has("out.cond_used")) check.close("cond_used", context, c.out("cond_used"));
  condition.context = context;
  // Without a mask upstream hides all of it, and it always keeps what it made where nothing was hidden.
  condition.hidden =
      c.has("in.cond_mask") ? c.in("cond_mask") : at::ones({context.size(0), context.size(1)}, at::kBool);

  const auto how = voicebox_pytorch::sampling_config(c.config, c.json.value("steps", int64_t{3}),
                                                     c.json.value("cond_scale", 1.0));
  const at::Tensor noise = c.rand("y0");
  const Flow flow = voicebox::guided_flow(wrapper.network, condition, how.guidance);
  if (c.has("out.first_flow")) check.close("first_flow", flow(at::zeros({1}), noise), c.out("first_flow"));
  std::vector<at::Tensor> asked;
  const Flow watched = [&](const at::Tensor& times, const at::Tensor& x) {
    asked.push_back(times.clone());
    return flow(times, x);
  };
  const OdeSolution solution = solve(watched, noise, how.solver);
  const bool adaptive = runge_kutta(how.solver.method).adaptive();
  const double tolerance = adaptive ? kAdaptiveSteps : kFixedSteps;
  check_times(c, check, asked, adaptive);
  for (const char* name : {"sampled", "latents"})
    if (c.has(std::string("out.") + name)) check.close(name, solution.x, c.out(name), tolerance);
  if (c.has("out.codes"))
    check.close("codes", wrapper.features->codes(solution.x).transpose(1, 2), c.out("codes"));
  if (c.has("out.audio"))
    check.close("audio", wrapper.features->decode(solution.x).unsqueeze(1), c.out("audio"), tolerance);
}

void check_wrapper(const Case& c, Checker& check) {
  c.has("out.loss") ? check_loss(c, check) : check_sample(c, check);
}

const bool registered = register_case("voicebox", "ConditionalFlowMatcherWrapper", check_wrapper);

}  // namespace

}  // namespace melete::golden::voicebox_flow_cases
