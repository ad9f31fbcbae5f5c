// DurationPredictor and its aligner.
#include "core/base/error.h"
#include "systems/voicebox/masks.h"
#include "voicebox.h"

namespace melete::golden::voicebox_durations_cases {

namespace {

using nlohmann::ordered_json;

at::Tensor lengths_of(const at::Tensor& mask) {  // [batch, 1, n] -> [batch]
  return mask.flatten(1).ne(0).sum(1);
}

void check_aligner(const Case& c, Checker& check) {
  ordered_json arguments = c.config;
  const double blank = arguments.value("blank_logprob", c.json.value("blank_logprob", -1.0));
  arguments.erase("blank_logprob");  // of its loss
  voicebox::Aligner model(voicebox_pytorch::aligner_config(arguments));
  voicebox_pytorch::load(*model, c.weights, c.name);
  voicebox::AlignerInput input;
  input.embeddings = c.in("x").clone().set_requires_grad(true);
  const at::Tensor mel = c.in("mel").clone().set_requires_grad(true);
  input.frames = mel.transpose(1, 2);
  input.phoneme_lengths = lengths_of(c.in("x_mask"));
  input.frame_lengths = lengths_of(c.in("mel_mask"));
  const voicebox::Alignment alignment = model->forward(input);
  check.close("alignment_hard", alignment.durations, c.out("alignment_hard"));
  check.close("alignment_soft", alignment.soft.transpose(1, 2), c.out("alignment_soft"));
  check.close("alignment_logprob", alignment.scores.unsqueeze(1), c.out("alignment_logprob"));
  check.close("alignment_mas", alignment.hard.transpose(1, 2).to(at::kFloat), c.out("alignment_mas"));
  if (c.has("out.bin_loss"))
    check.close("bin_loss", voicebox::binarisation_loss_as_upstream(alignment), c.out("bin_loss"));
  if (!c.has("out.forward_sum_loss")) return;
  const at::Tensor loss =
      voicebox::forward_sum_loss(alignment.scores, c.in("mel_len"), c.in("phoneme_len"), blank);
  check.close("forward_sum_loss", loss, c.out("forward_sum_loss"));
  loss.backward();
  check.gradient("grad_x", input.embeddings.grad(), c.out("grad_x_of_forward_sum"), kVoiceboxGradient);
  check.gradient("grad_mel", mel.grad(), c.out("grad_mel_of_forward_sum"), kVoiceboxGradient);
  check_gradients(c, check, *model);
}

// Which frames' condition is hidden by its own draw: of a span of each row, or of each frame by chance.
at::Tensor drawn_hidden(const Case& c, const std::string& prefix, const at::Tensor& condition) {
  const auto shares = c.config.value("frac_lengths_mask", std::vector<double>{0.1, 1});
  VoiceboxDraws draws(c, prefix, shares[0], shares[1]);
  const int64_t batch = condition.size(0), frames = condition.size(1);
  if (c.has("rand." + prefix + "frac_lengths"))
    return voicebox::span_mask(at::full({batch}, frames, at::kLong), frames, shares[0], shares[1], draws);
  return voicebox::chance_mask({batch, frames}, c.config.value("p_drop_prob", 0.2), "bernoulli", draws);
}

// Rows that are drawn to go without their condition; undefined where none is.
at::Tensor drawn_dropped(const Case& c, const std::string& prefix, int64_t batch) {
  const auto given = c.json.value("cond_drop_prob", ordered_json());
  if (given.is_null() || given.get<double>() == 0) return {};
  VoiceboxDraws draws(c, prefix, 0, 1);
  return voicebox::chance_mask({batch}, given.get<double>(), "condition_drop", draws);
}

// The loss that upstream means: durations against those of its own aligner, and the aligner's loss.
void check_intended_loss(const Case& c, Checker& check, voicebox::DurationPredictor& model,
                         voicebox::DurationInput input) {
  if (!input.hidden.defined()) input.hidden = drawn_hidden(c, "", input.condition);
  input.dropped = drawn_dropped(c, "", input.phonemes.size(0));
  if (c.has("out.cond_mask")) check.close("cond_mask", input.hidden, c.out("cond_mask"));
  if (c.has("out.cond_drop_mask")) check.close("cond_drop_mask", input.dropped, c.out("cond_drop_mask"));
  voicebox::Aligner aligner(voicebox_pytorch::duration_aligner_config(c.config));
  voicebox_pytorch::load(*aligner, below(c.weights, "aligner."), c.name);
  voicebox::AlignerInput given;
  given.frames = c.in("mel");
  given.embeddings = model->phoneme_embedding(input.phonemes.clamp_min(0));
  given.frame_lengths = lengths_of(c.in("mel_mask"));
  given.phoneme_lengths = lengths_of(c.in("phoneme_mask"));
  const voicebox::Alignment alignment = aligner->forward(given);
  if (c.has("out.alignment_hard"))
    check.close("alignment_hard", alignment.durations.to(at::kFloat), c.out("alignment_hard"));
  const auto losses = voicebox::duration_losses(model, input, alignment.durations);
  const at::Tensor align = voicebox::forward_sum_loss(alignment.scores, c.in("mel_len"), c.in("phoneme_len"));
  check.close("durations", losses.durations, c.out("durations"));
  check.close("l1_loss", losses.total, c.out("l1_loss"));
  check.close("align_loss", align, c.out("align_loss"));
  const at::Tensor loss = losses.total + align;
  check.close("loss", loss, c.out("loss"));
  loss.backward();
  check_gradients(c, check, *model);
  check_gradients(c, check, *aligner, "aligner.");
}

// With masks that upstream draws for itself, in eval mode, too.
void check_drawn_masks(const Case& c, Checker& check, voicebox::DurationPredictor& model,
                       const voicebox::DurationInput& given) {
  for (const std::string kind : {"span", "bernoulli"}) {
    if (!c.has("out.durations_" + kind)) continue;
    voicebox::DurationInput input = given;
    input.hidden = drawn_hidden(c, kind + "_", given.condition);
    check.close(kind + "_cond_mask", input.hidden, c.out(kind + "_cond_mask"));
    input.dropped = drawn_dropped(c, kind + "_", given.condition.size(0));
    if (input.dropped.defined())
      check.close(kind + "_cond_drop_mask", input.dropped, c.out(kind + "_cond_drop_mask"));
    check.close("durations_" + kind, model->forward(input), c.out("durations_" + kind));
  }
}

void check_durations(const Case& c, Checker& check) {
  const at::Tensor* projection =
      c.weights.count("proj_in.weight") ? &c.weights.at("proj_in.weight") : nullptr;
  ordered_json arguments = c.config;
  arguments["num_phoneme_tokens"] =
      c.weights.at("to_phoneme_emb.weight").size(0);  // a tokenizer says so otherwise
  voicebox::DurationPredictor model(
      voicebox_pytorch::duration_config(arguments, projection != nullptr ? projection->size(1) : 0));
  voicebox_pytorch::load(*model, c.weights, c.name);
  voicebox::DurationInput input;
  input.phonemes = c.in("phoneme_ids");
  input.condition = c.in("cond");
  input.hidden = optional_input(c, "cond_mask");
  input.valid = optional_input(c, "self_attn_mask");
  if (c.has("out.loss")) return check_intended_loss(c, check, model, input);
  model->eval();
  const at::NoGradGuard no_grad;
  if (!input.hidden.defined()) return check_drawn_masks(c, check, model, input);
  const at::Tensor durations = model->forward(input);
  if (c.has("out.durations")) check.close("durations", durations, c.out("durations"));
  // Asked once, it repeats phonemes with padding as 0; asked with a scale, with padding as -1.
  if (c.has("out.aligned_phoneme_ids"))
    check.close("aligned_phoneme_ids", voicebox::repeat_as_upstream(input.phonemes.clamp_min(0), durations),
                c.out("aligned_phoneme_ids"));
  if (c.has("out.durations_null")) {
    voicebox::DurationInput dropped = input;
    dropped.dropped = at::ones({input.phonemes.size(0)}, at::kBool);
    check.close("durations_null", model->forward(dropped), c.out("durations_null"));
  }
  const std::string tag = "out.durations_scale_";
  for (const auto& [key, tensor] : c.io) {
    if (!key.starts_with(tag)) continue;
    const std::string scale = key.substr(tag.size());
    const at::Tensor guided = model->guided(input, std::stod(scale));
    check.close(key.substr(4), guided, tensor);
    if (c.has("out.aligned_scale_" + scale))
      check.close("aligned_scale_" + scale, voicebox::repeat_as_upstream(input.phonemes, guided),
                  c.out("aligned_scale_" + scale));
  }
}

const bool registered = register_case("voicebox", "naturalspeech2_pytorch.aligner.Aligner", check_aligner) &&
                        register_case("voicebox", "DurationPredictor", check_durations);

}  // namespace

}  // namespace melete::golden::voicebox_durations_cases
