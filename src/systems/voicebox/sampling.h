// Speech from noise: the flow that Voicebox predicts, followed from time 0 to time 1.
#pragma once

#include <ATen/ATen.h>

#include "generate/ode.h"
#include "systems/voicebox/voicebox.h"

namespace melete::voicebox {

struct FlowSampling {
  OdeConfig solver;
  double guidance = 1;     // how far to go from the untold direction to the told one; 1: just that
  double temperature = 1;  // deviation of the noise at the start; below 1: nearer to the average, clearer
  std::string precision = "fp32";  // of the factors of products
};
void describe(Schema& schema, FlowSampling& config);

struct Sampled {
  at::Tensor frames;  // [batch, frames, frame_dim]; where context was not hidden, it is there bit for bit
  OdeSolution solution;
};
// What is to be made is what the condition hides. Without a mask all frames are made, with all of the context
// in sight. draws: one, the noise.
// Wherever the condition is: it goes to the model, and the frames come back to it.
Sampled sample(Voicebox& model, const Condition& condition, const FlowSampling& how, Draws& draws);
// From that noise, of deviation 1: [batch, frames, frame_dim]
Sampled sample(Voicebox& model, const Condition& condition, const FlowSampling& how, const at::Tensor& noise);

// The flow of a condition for a solver; no gradient.
Flow guided_flow(Voicebox& model, const Condition& condition, double guidance);

// Context cut at its end, or lengthened by frames of zeros: [batch, n, dim] -> [batch, frames, dim]
at::Tensor with_length(const at::Tensor& context, int64_t frames);

// How many frames stand for so many tokens, both at their own rates a second.
int64_t frames_of_tokens(int64_t tokens, double tokens_per_second, double frames_per_second);

}  // namespace melete::voicebox
