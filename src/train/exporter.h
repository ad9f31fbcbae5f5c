// One kind of model on its way out of a checkpoint: what all kinds share, and what each has to say.
#pragma once

#include <torch/nn/module.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "run/checkpoint.h"
#include "run/load_weights.h"

namespace melete {

enum class ExportFor {
  inference,  // no optimisers, no discriminators
  finetune,   // the same, with discriminators
  training,   // with optimisers: the package that was imported, or one like it
};

struct ExportRequest {
  ExportFor purpose = ExportFor::inference;
  Weights weights = Weights::best;  // averaged where there is an average, or as the optimiser left them
};

class Exporter {
 public:
  // `path` goes into messages.
  Exporter(const Checkpoint& checkpoint, std::string path)
      : checkpoint_(checkpoint), path_(std::move(path)) {}
  virtual ~Exporter() = default;

  // Each returns what a person should know.
  std::vector<std::string> write_torch(const std::string& out, const ExportRequest& request);
  std::vector<std::string> write_ours(const std::string& out, const ExportRequest& request);

 protected:
  using Json = nlohmann::ordered_json;

  // What torch.load shall read, as in io/base/pickle_json.h, its tensors by reference().
  virtual Json weights_tree(ExportFor purpose) = 0;
  // A package to go on training from, where none was imported.
  virtual Json training_tree() = 0;
  virtual bool used_in_inference(const std::string& /*ours*/) const { return true; }

  // The model's own, parameters and buffers.
  virtual std::vector<std::string> names() = 0;
  at::Tensor wanted(
      const std::string& ours) const;  // averaged, where that is asked for and there is an average
  at::Tensor stored(const std::string& key) const;  // an Error where the checkpoint lacks it
  Json reference(const std::string& name, const at::Tensor& tensor);
  // The state of torch's optimiser over our parameters of a phase, which stand there in this order: see
  // train/torch_optimiser.h. place: where in the tree it will stand; settings: the phase's optimiser in the
  // configuration.
  Json optimiser_state(const std::string& place, const std::string& phase,
                       std::vector<std::string> parameters, const Json& settings);
  // The version of upstream that an imported package said it was of; `known` where there is none.
  std::string release(const std::string& known) const;
  void note(std::string text) { notes_.push_back(std::move(text)); }

  const Checkpoint& checkpoint_;
  std::string path_;

 private:
  // Every tensor that an imported tree names, in the shape and type that it had there.
  void collect(Json& value);

  ExportRequest request_;
  std::map<std::string, at::Tensor> tensors_;
  std::vector<std::string> notes_;
};

// Names as PyTorch lists them: a module's own parameters, then its buffers, then its submodules, each in the
// order of the constructor. order: all words that occur in them; numbers count as such.
void sort_as_registered(std::vector<std::string>& names, const std::vector<std::string>& order);

// Parameters, then buffers.
std::vector<std::string> tensor_names(const torch::nn::Module& module);

}  // namespace melete
