// One kind of model on its way out of a checkpoint: what all kinds share, and what each has to say.
#pragma once

#include <torch/nn/module.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "generate/export_checkpoint.h"
#include "run/checkpoint.h"

namespace melete {

class Exporter {
 public:
  // `path` goes into messages.
  Exporter(const Checkpoint& checkpoint, std::string path)
      : checkpoint_(checkpoint), path_(std::move(path)) {}
  virtual ~Exporter() = default;

  // Each returns what a person should know.
  std::vector<std::string> write_torch(const std::string& out, ExportFor purpose);
  std::vector<std::string> write_ours(const std::string& out, ExportFor purpose);

 protected:
  using Json = nlohmann::ordered_json;

  virtual torch::nn::Module& model() = 0;
  // What torch.load shall read, as in io/base/pickle_json.h, its tensors by reference().
  virtual Json weights_tree(ExportFor purpose) = 0;
  // A package to go on training from, where none was imported.
  virtual Json training_tree() = 0;
  virtual bool used_in_inference(const std::string& /*ours*/) const { return true; }

  // Names and tensors of the model, parameters and buffers.
  std::vector<std::string> names();
  at::Tensor best(const std::string& ours) const;   // averaged, where there is an average
  at::Tensor stored(const std::string& key) const;  // an Error where the checkpoint lacks it
  Json reference(const std::string& name, const at::Tensor& tensor);
  // The version of audiolm-pytorch that the package says it is of.
  std::string release() const;
  void note(std::string text) { notes_.push_back(std::move(text)); }

  const Checkpoint& checkpoint_;
  std::string path_;

 private:
  // Every tensor that an imported tree names, in the shape and type that it had there.
  void collect(Json& value);

  std::map<std::string, at::Tensor> tensors_;
  std::vector<std::string> notes_;
};

std::unique_ptr<Exporter> make_soundstream_exporter(const Checkpoint& checkpoint, const std::string& path);
// A checkpoint of the task "semantic", "coarse" or "fine".
std::unique_ptr<Exporter> make_stage_exporter(const Checkpoint& checkpoint, const std::string& path);

}  // namespace melete
