#include "generate/export_checkpoint.h"

#include <filesystem>
#include <map>

#include "core/base/error.h"
#include "generate/exporter.h"
#include "generate/load_weights.h"
#include "run/run_folder.h"

namespace melete {

namespace {

std::unique_ptr<Exporter> make_exporter(const FoundCheckpoint& found) {
  using Make = std::unique_ptr<Exporter> (*)(const Checkpoint&, const std::string&);
  static const std::map<std::string, Make> kinds = {{"soundstream", make_soundstream_exporter},
                                                    {"semantic", make_stage_exporter},
                                                    {"coarse", make_stage_exporter},
                                                    {"fine", make_stage_exporter}};
  const auto kind = kinds.find(found.checkpoint.meta.value("task", ""));
  require(kind != kinds.end(), "[export] {} is a checkpoint of `{}`, which cannot be exported yet",
          found.path, found.checkpoint.meta.value("task", ""));
  return kind->second(found.checkpoint, found.path);
}

}  // namespace

std::vector<std::string> export_checkpoint(const std::string& run_or_checkpoint, const std::string& out,
                                           ExportFor purpose) {
  const at::NoGradGuard no_grad;
  const FoundCheckpoint found = open_checkpoint(run_or_checkpoint, "export");
  const std::string extension = std::filesystem::path(out).extension().string();
  const std::unique_ptr<Exporter> exporter = make_exporter(found);
  if (extension == ".pt" || extension == ".pth") return exporter->write_torch(out, purpose);
  require(extension == ".safetensors",
          "[export] expected an output ending in .pt (audiolm-pytorch) or .safetensors (melete), got {}",
          out);
  require(purpose != ExportFor::training,
          "[export] a checkpoint that training goes on from is what {} already is; try copying it",
          found.path);
  return exporter->write_ours(out, purpose);
}

}  // namespace melete
