// From a checkpoint to a file for others: a `.pt` with audiolm-pytorch's names that torch.load reads, or a
// `.safetensors` with weights alone.
#pragma once

#include <string>
#include <vector>

namespace melete {

enum class ExportFor {
  inference,  // averaged weights; no optimisers, no discriminators
  finetune,   // the same, with discriminators
  training,   // with optimisers: the package that was imported, or for a stage one like it
};

// `run_or_checkpoint`: a run folder (its newest usable checkpoint) or a file. Returns what a person should
// know.
std::vector<std::string> export_checkpoint(const std::string& run_or_checkpoint, const std::string& out,
                                           ExportFor purpose);

}  // namespace melete
