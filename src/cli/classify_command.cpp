#include <fmt/format.h>

#include <filesystem>

#include "cli/arguments.h"
#include "cli/joint_embedding_commands.h"
#include "cli/machine_words.h"
#include "cli/terminal.h"
#include "core/base/error.h"
#include "systems/musiclm/embed.h"
#include "systems/musiclm/load.h"
#include "systems/musiclm/zero_shot.h"

namespace melete {

int classify_command(const std::vector<std::string>& args) {
  std::string run;
  std::vector<std::string> files, labels, templates;
  MachineWords machine;
  Arguments arguments("classify", "names what is heard, by labels that nobody trained on");
  arguments.word("run", run, "run or checkpoint of mulan");
  arguments.rest("files", files, "recordings");
  arguments.option("labels", labels, "what to choose from: \"dog,rain,violin\"");
  arguments.option("templates", templates,
                   "sentences that labels are put into, {} being the label; default: those of the run");
  machine.describe(arguments);
  arguments.example("classify runs/mulan a.wav b.wav --labels \"plucked string,bell,organ\"");
  if (!arguments.parse(args)) return 0;
  if (files.empty()) throw UsageError("expected recordings to name, got none");
  if (labels.size() < 2) throw UsageError("expected --labels with at least two, for example \"dog,rain\"");

  const musiclm::LoadedMulan mulan = musiclm::load_mulan(run, machine.start());
  const musiclm::ZeroShot classifier(*mulan.embedding, labels,
                                     templates.empty() ? mulan.templates.for_names() : templates,
                                     mulan.embedding->scale());
  say_cut(*mulan.embedding, classifier.sentences());
  const at::Tensor shares = classifier.probabilities(musiclm::embed_files(*mulan.embedding, files));
  std::vector<std::string> headers = {"file", "is"};
  for (const std::string& label : labels) headers.push_back(label);
  TextTable table(headers);
  for (size_t i = 0; i < files.size(); ++i) {
    const at::Tensor row = shares[static_cast<int64_t>(i)];
    std::vector<std::string> cells = {files[i], labels[static_cast<size_t>(row.argmax().item<int64_t>())]};
    for (int64_t label = 0; label < row.size(0); ++label)
      cells.push_back(fmt::format("{:.3f}", row[label].item<double>()));
    table.row(cells);
  }
  fmt::print("{}", table.text());
  return 0;
}

}  // namespace melete
