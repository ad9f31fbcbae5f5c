// From audiolm-pytorch's files to a checkpoint that `train --resume`, `codec`, `generate` and `export` use.
// Every kind of model is one row of a table in the .cpp.
#pragma once

#include <string>
#include <vector>

#include "run/checkpoint.h"

namespace melete {

struct ImportedCheckpoint {
  std::string kind;  // "soundstream", "semantic", "coarse", "fine"
  Checkpoint checkpoint;
  bool complete = false;           // with optimisers: training can go on where it was
  std::vector<std::string> notes;  // what a person should know
};

// A trainer's package (soundstream.N.pt, semantic.transformer.N.pt, ...), what soundstream.save() writes, or
// a bare state_dict. `arguments`: constructor arguments that the file does not hold; those that contradict
// its weights are an Error.
//
// What the package holds besides what we keep goes along: meta["foreign"] has its tree, with every tensor
// named by its place there and by our key, and tensors that we have no use for are at `foreign.<place>`.
// `export --for training` writes the same package again.
ImportedCheckpoint import_audiolm_pytorch(const std::string& path,
                                          const nlohmann::ordered_json& arguments = {});

}  // namespace melete
