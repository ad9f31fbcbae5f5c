// What the packages of the Python trainers have in common on their way to a checkpoint of ours: weights,
// Adam's states, and a tree that can be written again. One importer a kind of model goes on from here.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/base/torch_file.h"
#include "io/foreign_weights.h"
#include "run/checkpoint.h"
#include "train/phase_config.h"
#include "train/recipe.h"

namespace melete {

struct ImportedCheckpoint {
  std::string kind;  // the task: "soundstream", "semantic", ...
  Checkpoint checkpoint;
  bool complete = false;           // with optimisers: training can go on where it was
  std::vector<std::string> notes;  // what a person should know
};

// What the package holds besides what we keep goes along: meta["foreign"] has its tree, with every tensor
// named by its place there and by our key, and tensors that we have no use for are at `foreign.<place>`.
// `export --for training` writes the same package again.
struct PackageSource {
  std::string from;  // whose: "audiolm-pytorch"
  std::string path;
  const TorchFile& file;
  const PickleValue* state;      // the model's state_dict
  bool package;                  // a dict around it, with settings and perhaps optimisers
  nlohmann::ordered_json given;  // constructor arguments that the file may not hold
};

class ForeignPackage {
 public:
  ForeignPackage(const PackageSource& source, const std::string& kind);

  const std::string& path() const { return source_.path; }
  const nlohmann::ordered_json& given() const { return source_.given; }
  const TensorMap& state() const { return state_; }  // the model's, by their names
  std::vector<std::string>& notes() { return result_.notes; }
  TensorMap& tensors() { return result_.checkpoint.tensors; }

  // What stands beside the model in the package; nullptr where there is none.
  const PickleValue* part(const std::string& name) const;
  TensorMap tensors_of(const PickleValue& part) const;
  // The settings in `config`; null where there are none.
  nlohmann::ordered_json constructor_arguments() const;

  // The weights under our names; every pair has been loaded from state() before.
  void take_weights(const std::vector<NamedPair>& pairs);
  // Says that what stands at `place` of the package is our tensor `key`.
  void place(const std::string& place, const std::string& key) { places_[place] = key; }
  // Names of the module's parameters (not buffers) in the order of the state_dict.
  std::vector<std::string> parameter_names(const torch::nn::Module& module) const;

  // An Adam's state, whose parameters stand in `order`, for the optimiser of our `phase`. Its learning rate
  // and the like go to `settings`. False where the package has none.
  bool read_optimiser(const std::string& key, const std::string& phase, std::vector<std::string> order,
                      PhaseConfig* settings);

  // Counters, the rest of the package, and the description; `parameters`: how many there are, by phase.
  ImportedCheckpoint finish(Recipe& recipe, const nlohmann::ordered_json& parameters, bool complete);

 private:
  void read_settings(const PickleValue& whole, const PickleValue& group, PhaseConfig& settings) const;
  void keep_the_rest();
  int64_t step_from_name() const;

  PackageSource source_;
  ImportedCheckpoint result_;
  TensorMap state_;
  std::map<std::string, std::string> places_;  // our key of a tensor by its place in the package
  std::map<std::string, std::string> ours_;    // our name of a weight by theirs
  int64_t step_ = 0;
};

}  // namespace melete
