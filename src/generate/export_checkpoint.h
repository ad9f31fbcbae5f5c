// From a checkpoint to a file for others: a `.pt` with audiolm-pytorch's names that torch.load reads, or a
// `.safetensors` with weights alone.
#pragma once

#include <string>
#include <vector>

namespace melete {

enum class ExportFor {
  inference,  // averaged weights of the codec; no optimisers, no discriminators
  finetune,   // the same, with discriminators
  training,   // the package that was imported, with optimisers and average
};

// `run_or_checkpoint`: a run folder (its newest usable checkpoint) or a file. Returns what a person should
// know.
std::vector<std::string> export_checkpoint(const std::string& run_or_checkpoint, const std::string& out,
                                           ExportFor purpose);

}  // namespace melete
