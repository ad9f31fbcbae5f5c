// VoiceBoxTrainer: its steps, and the learning rates that it really uses.
#include "core/base/error.h"
#include "systems/voicebox/upstream_schedule.h"
#include "train/optimiser.h"
#include "voicebox.h"

namespace melete::golden::voicebox_trainer_cases {

namespace {

using nlohmann::ordered_json;

voicebox_pytorch::TrainerRates rates(const ordered_json& settings, int64_t items = 0) {
  const auto number = [&](const char* name, double otherwise) {
    const auto found = settings.find(name);
    return found == settings.end() || found->is_null() ? otherwise : found->get<double>();
  };
  voicebox_pytorch::TrainerRates result;
  result.learning_rate = number("lr", 3e-4);
  result.first_rate = number("initial_lr", 1e-5);
  result.warmup_steps = static_cast<int64_t>(number("num_warmup_steps", 0));
  result.run_steps = static_cast<int64_t>(number("num_train_steps", 1));
  if (const double epochs = number("num_epochs", 0); epochs > 0)
    result.run_steps = items / static_cast<int64_t>(number("batch_size", 1)) * static_cast<int64_t>(epochs);
  return result;
}

void check_rates(const Case& c, Checker& check) {
  for (const auto& [name, sequence] : c.json.at("sequences").items()) {
    voicebox_pytorch::TrainerSchedule schedule(
        rates(sequence.at("settings"), sequence.value("dataset_size", int64_t{0})));
    const auto& want = sequence.at("lr_used_by_each_optimizer_step");
    std::vector<double> got, expected;
    for (size_t step = 0; step < want.size(); ++step) {
      // Beside the largest, as rates are below the floor of the comparison.
      const double largest = rates(sequence.at("settings")).learning_rate;
      got.push_back(schedule.rate(static_cast<int64_t>(step)) / largest);
      expected.push_back(want[step].get<double>() / largest);
    }
    check.close(name, at::tensor(got, at::kDouble), at::tensor(expected, at::kDouble));
  }
}

void check_trainer(const Case& c, Checker& check) {
  const ordered_json& given = c.config.at("trainer");
  expect_only_trainer(given, {"num_train_steps", "num_warmup_steps", "num_epochs", "lr", "initial_lr",
                              "grad_accum_every", "wd", "max_grad_norm", "log_every"});
  const TensorMap weights = below(c.weights, "voicebox."), audio = below(weights, "audio_enc_dec.");
  const auto features = audio.empty() ? nullptr : encodec_vocos(c, audio);
  voicebox::Voicebox model =
      voicebox_network(c, c.config.at("voicebox"), weights, features ? features->dim() : 0);
  const auto config = voicebox_pytorch::flow_matching_config(
      c.config.value("cfm_wrapper", ordered_json::object()), c.config.at("voicebox"));
  const int64_t items =
      c.json.contains("dataset_lengths") ? static_cast<int64_t>(c.json["dataset_lengths"].size()) : 0;
  const auto settings = rates(given, items);
  voicebox_pytorch::TrainerSchedule schedule(settings);
  OptimiserConfig adam;
  adam.weight_decay = given.value("wd", 0.0);
  NamedTensors parameters;
  for (const auto& item : model->named_parameters()) parameters.emplace_back(item.key(), item.value());
  Optimiser optimiser(parameters, adam);
  const double clip = !given.contains("max_grad_norm")   ? 0.5
                      : given["max_grad_norm"].is_null() ? 0
                                                         : given["max_grad_norm"].get<double>();
  const auto losses_of = [&](const std::string& name) {
    voicebox::FlowBatch batch;
    batch.frames = c.in(name + ".x1");
    if (features && batch.frames.dim() == 2) batch.frames = features->encode(batch.frames);  // sound
    if (c.has("in." + name + ".semantic_token_ids")) batch.tokens = c.in(name + ".semantic_token_ids");
    if (c.has("out." + name + ".semantic_token_ids")) batch.tokens = c.out(name + ".semantic_token_ids");
    VoiceboxDraws draws(c, name + ".", config.hidden_share_low, config.hidden_share_high);
    const auto losses = voicebox::flow_matching_losses(model, batch, config, draws);
    if (c.has("out." + name + ".span_mask"))
      check.close(name + ".span_mask", losses.hidden, c.out(name + ".span_mask"));
    check.close(name + ".loss", losses.total, c.out(name + ".loss"));
    return losses.total;
  };

  const int64_t accumulate = given.value("grad_accum_every", int64_t{1});
  const int64_t every = given.value("save_results_every", int64_t{100});
  int64_t validated = 0;
  for (int64_t step = 0; c.has(fmt::format("in.s{}_a0.x1", step)); ++step) {
    const std::string prefix = fmt::format("s{}", step);
    for (int64_t part = 0; part < accumulate; ++part)
      (losses_of(fmt::format("{}_a{}", prefix, part)) / accumulate).backward();
    const double norm = optimiser.gradient_norm().item<double>();
    check.close(prefix + ".grad_norm_before_clip", at::scalar_tensor(norm),
                c.out(prefix + ".grad_norm_before_clip"));
    const at::Tensor& rate = c.out(prefix + ".lr");
    check.close(prefix + ".lr", at::full_like(rate, schedule.rate(step) / settings.learning_rate),
                rate / settings.learning_rate);
    optimiser.step(schedule.rate(step), clip_scale(norm, clip));
    optimiser.clear_gradients();
    if (step % every != 0) continue;
    const at::NoGradGuard no_grad;
    if (const std::string name = fmt::format("valid{}", validated++); c.has("in." + name + ".x1"))
      losses_of(name);
  }
  for (const auto& pair : voicebox_pytorch::pairs(*model))
    if (const std::string key = "out.final.voicebox." + pair.theirs; c.has(key))
      check.close("final." + pair.theirs, pair.tensor.detach().reshape(c.get(key).sizes()), c.get(key));
}

const bool registered = register_case("voicebox", "VoiceBoxTrainer", check_trainer) &&
                        register_case("voicebox", "lr_schedule", check_rates);

}  // namespace

}  // namespace melete::golden::voicebox_trainer_cases
