// Training Voicebox: from speech, noise and a time to the loss of the network's guess.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

#include "systems/voicebox/voicebox.h"

namespace melete::voicebox {

struct FlowMatchingConfig {
  double sigma = 1e-5;          // deviation of the noise that is left at the end of the way
  double condition_drop = 0.2;  // share of rows that are told nothing, for guidance later
  double hide_all = 0.3;        // share of rows whose whole context is hidden
  double hidden_share_low = 0.7, hidden_share_high = 1;  // of a row's frames that are hidden otherwise
  // voicebox-pytorch: where no context is given it is the flow itself, noise and all; spans are laid over
  // padding, too; no context is hidden as a whole.
  bool as_upstream = false;
};
void describe(Schema& schema, FlowMatchingConfig& config);

struct FlowBatch {
  at::Tensor frames;   // [batch, frames, frame_dim]
  at::Tensor tokens;   // see Condition
  at::Tensor valid;    // see Condition
  at::Tensor context;  // [batch, frames, frame_dim] or undefined: the frames themselves
  at::Tensor hidden;   // bool [batch, frames] or undefined: drawn
};

// bool [batch, frames]: what is hidden of a batch. Draws: mask_fraction, mask_start, hide_all.
at::Tensor drawn_mask(const FlowBatch& batch, const FlowMatchingConfig& config, Draws& draws);

struct FlowLosses {
  at::Tensor total;   // scalar: mean over rows, and what the draft learns from
  at::Tensor chance;  // scalar: mean over rows for one who always says "nowhere": the variance of the answers
  at::Tensor
      rows;  // [batch]: of each row over its hidden frames, detached; in units of the draft's deviation
  at::Tensor draft;    // scalar: mean squared error of the draft, detached; undefined without one
  at::Tensor times;    // [batch]: where on the way each row stood
  at::Tensor hidden;   // bool [batch, frames]
  at::Tensor dropped;  // bool [batch]; undefined where nothing is dropped
};
// Draws, in this order: noise, times, mask_fraction, mask_start, hide_all, condition_drop.
FlowLosses flow_matching_losses(Voicebox& model, const FlowBatch& batch, const FlowMatchingConfig& config,
                                Draws& draws);

// The same for times, noise and masks that are given, so that a figure can be compared over a run: no draws,
// no dropout, nothing dropped.
struct FlowDraws {
  at::Tensor noise, times, hidden;
};
FlowLosses flow_matching_losses(Voicebox& model, const FlowBatch& batch, const FlowMatchingConfig& config,
                                const FlowDraws& given);

// The mean loss of the rows in each of `parts` stretches of the time: ("t 0.00-0.25", mean); stretches
// without a row are left out.
std::vector<std::pair<std::string, at::Tensor>> losses_by_time(const FlowLosses& losses, int64_t parts);

}  // namespace melete::voicebox
