#include "cli/inspect_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "cli/arguments.h"
#include "cli/import_frozen_command.h"
#include "cli/say_weights.h"
#include "cli/studio_command.h"
#include "cli/terminal.h"
#include "core/base/error.h"
#include "io/base/atomic_file.h"
#include "io/base/file_content.h"
#include "run/run_folder.h"
#include "studio/model_card.h"
#include "systems/foreign.h"
#include "train/ema_as_model.h"

namespace melete {

namespace {

namespace fs = std::filesystem;

// In a run folder: its newest checkpoint.
std::string file_of(const std::string& path) {
  if (!fs::is_directory(path)) return path;
  for (const CheckpointEntry& entry : list_checkpoints(path))
    if (entry.problem.empty()) return entry.path;
  fail("[inspect] {} is a folder without checkpoints", path);
}

std::string group_of(const std::string& name) {
  // Two levels where the first says little: "optimiser.generator", "ema.average".
  const size_t dot = name.find('.');
  if (dot == std::string::npos) return name;
  const std::string first = name.substr(0, dot);
  if (first != "optimiser" && first != "ema" && first != "ema_model" && first != "model") return first;
  return name.substr(0, name.find('.', dot + 1));
}

void print_summary(const FileContent& content) {
  struct Sum {
    int64_t tensors = 0, values = 0;
    double bytes = 0;
  };
  std::map<std::string, Sum> groups;
  Sum all;
  for (const FileTensor& tensor : content.tensors)
    for (Sum* sum : {&groups[group_of(tensor.name)], &all}) {
      ++sum->tensors;
      sum->values += tensor.tensor.numel();
      sum->bytes +=
          static_cast<double>(tensor.tensor.numel()) * static_cast<double>(tensor.tensor.element_bytes);
    }
  TextTable table({"part", "tensors", "values", "size"});
  const auto row = [&](const std::string& name, const Sum& sum) {
    table.row({name, std::to_string(sum.tensors), human_count(static_cast<double>(sum.values)),
               human_bytes(sum.bytes)});
  };
  if (groups.size() <= 40)
    for (const auto& [name, sum] : groups) row(name, sum);
  row("all", all);
  fmt::print("\n{}", table.text());
}

int print_difference(const std::string& a, const std::string& b) {
  const FileContent first = read_file_content(file_of(a)), second = read_file_content(file_of(b));
  int64_t equal = 0;
  const auto differences = compare_files(first, second, equal);
  TextTable table({"tensor", "difference", "largest", "values that differ"});
  for (const TensorDifference& difference : differences)
    table.row({difference.name, difference.what, difference.count > 0 ? short_number(difference.largest) : "",
               difference.count > 0 ? fmt::format("{} of {}", difference.differing, difference.count) : ""});
  if (!differences.empty()) fmt::print("{}\n", table.text());
  fmt::print("{} tensors are equal bit by bit, {} differ\n", equal, differences.size());
  return differences.empty() ? 0 : 1;
}

// NAME=VALUE words; a value is a number, true, false, a list, or else text.
nlohmann::ordered_json constructor_arguments(const std::vector<std::string>& given) {
  auto arguments = nlohmann::ordered_json::object();
  for (const std::string& word : given) {
    const size_t sign = word.find('=');
    if (sign == 0 || sign == std::string::npos)
      throw UsageError(fmt::format("--arguments takes NAME=VALUE, got `{}`", word));
    const std::string text = word.substr(sign + 1);
    auto value = nlohmann::ordered_json::parse(text, nullptr, false);
    arguments[word.substr(0, sign)] = value.is_discarded() ? nlohmann::ordered_json(text) : value;
  }
  return arguments;
}

}  // namespace

int inspect_command(const std::vector<std::string>& args) {
  std::vector<std::string> files;
  bool diff = false, summary = false;
  Arguments arguments("inspect", "what a checkpoint, a .pt, a pickle or a token file holds");
  arguments.rest("files", files, "one file or run folder; two with --diff");
  arguments.option("diff", diff, "compare two files tensor by tensor; exits with 1 when they differ");
  arguments.option("summary", summary, "parts and their sizes, without settings and tensors one by one");
  arguments.example("inspect soundstream.10000.pt");
  arguments.example("inspect --diff before.safetensors after.safetensors");
  if (!arguments.parse(args)) return 0;
  if (files.size() != (diff ? 2u : 1u))
    throw UsageError(diff ? "--diff takes two files" : "inspect takes one file, or two with --diff");
  if (diff) return print_difference(files[0], files[1]);

  const FileContent content = read_file_content(file_of(files[0]));
  fmt::print("{}: {}\n", content.path, content.format);
  if (!summary && !content.facts.empty()) {
    TextTable facts({"", ""});
    for (const auto& [name, text] : content.facts) facts.row({"  " + name, text});
    fmt::print("{}", facts.text());
  }
  if (content.tensors.empty()) return 0;
  if (!summary) {
    TextTable table({"tensor", "type", "shape"});
    for (const FileTensor& tensor : content.tensors)
      table.row(
          {tensor.name, tensor.tensor.element, fmt::format("[{}]", fmt::join(tensor.tensor.shape, ", "))});
    fmt::print("\n{}", table.text());
  }
  print_summary(content);
  return 0;
}

int import_command(const std::vector<std::string>& args) {
  // Published weights of frozen models take words of their own.
  const std::vector<std::string>& frozen = frozen_systems();
  if (!args.empty() && std::find(frozen.begin(), frozen.end(), args.front()) != frozen.end())
    return import_frozen_command(args.front(), {args.begin() + 1, args.end()});
  std::vector<std::string> sources = foreign_sources();
  sources.insert(sources.end(), frozen.begin(), frozen.end());
  std::string from, file, out;
  std::vector<std::string> given;
  Arguments arguments("import", "makes a checkpoint of melete from another program's file");
  arguments.word("from", from, "who wrote it, or which published weights").one_of(sources);
  arguments.word("file", file, "a trainer's package, a saved model or a state_dict (.pt)");
  arguments.option("out", out, "x.safetensors, or a run folder that `train --resume` goes on from");
  arguments.option("arguments", given,
                   "what the file does not say, as upstream's constructor takes it: NAME=VALUE,NAME=VALUE");
  arguments.alias("o", "out");
  arguments.example("import audiolm-pytorch results/soundstream.10000.pt -o codec.safetensors");
  arguments.example("import audiolm-pytorch results/soundstream.10000.pt -o runs/codec");
  arguments.example(
      "import audiolm-pytorch results/coarse.transformer.9000.pt -o runs/coarse "
      "--arguments attn_dropout=0.1,cond_as_self_attn_prefix=true");
  arguments.example("import encodec --help");
  if (!arguments.parse(args)) return 0;
  if (out.empty()) throw UsageError("-o is missing: x.safetensors or a run folder");

  const ImportedCheckpoint imported = import_foreign(from, file, constructor_arguments(given));
  std::string path = out;
  if (fs::path(out).extension() == ".safetensors") {
    save_checkpoint(out, imported.checkpoint);
  } else {
    RunFolder folder(out, StartMode::new_run);
    folder.write_config(imported.checkpoint.meta.at("config"));
    path = folder.save(imported.checkpoint, KeepRule{});
  }
  for (const std::string& note : imported.notes) fmt::print(stderr, "note: {}\n", note);
  fmt::print("{}: {} at step {}, {}\n", path, imported.kind, imported.checkpoint.step(),
             imported.complete ? "ready to train on" : "weights");
  return 0;
}

int export_command(const std::vector<std::string>& args) {
  std::string from, out, card, purpose = "inference", weights = "ema";
  bool as_model = false;
  Arguments arguments("export", "writes a checkpoint as a file for others");
  arguments.word("from", from, "run folder or checkpoint");
  arguments.option("out", out, "x.pt with the Python system's names, or x.safetensors of melete");
  arguments
      .option("for", purpose,
              "inference: weights alone; finetune: with discriminators; training: with optimisers, as an "
              "imported package was")
      .one_of({"inference", "finetune", "training"});
  arguments
      .option("weights", weights,
              "ema: averaged, where there is an average; online: as the optimiser left them")
      .one_of({"ema", "online"});
  arguments.option(
      "ema_as_model", as_model,
      "a new run folder (or x.safetensors) that training goes on from, with the averaged weights as "
      "the online ones");
  arguments.option("card", card, "also, or only, a model card of the run in Markdown: card.md");
  arguments.alias("o", "out");
  arguments.example("export runs/codec -o codec.pt");
  arguments.example("export runs/codec --card card.md");
  arguments.example("export runs/codec -o codec.safetensors --for finetune");
  arguments.example("export runs/codec -o runs/settled --ema_as_model");
  if (!arguments.parse(args)) return 0;
  if (!card.empty()) {
    write_file_atomically(card, model_card(from, commands_with(from)));
    fmt::print("{}: model card of {}\n", card, from);
    if (out.empty()) return 0;
  }
  if (out.empty()) throw UsageError("-o is missing: x.pt or x.safetensors");
  if (as_model) {
    if (purpose != "inference" || weights != "ema")
      throw UsageError("--ema_as_model says what is written; leave --for and --weights out");
    const std::string path = write_ema_as_model(open_checkpoint(from, "export"), out);
    fmt::print("{}: {}, to go on training from\n", path,
               human_bytes(static_cast<double>(fs::file_size(path))));
    return 0;
  }
  const ExportFor what = purpose == "inference"  ? ExportFor::inference
                         : purpose == "finetune" ? ExportFor::finetune
                                                 : ExportFor::training;
  const SayWeights say_weights;
  const ExportRequest request{what, weights_named(weights)};
  for (const std::string& note : export_checkpoint(from, out, request))
    fmt::print(stderr, "note: {}\n", note);
  fmt::print("{}: {}\n", out, human_bytes(static_cast<double>(fs::file_size(out))));
  return 0;
}

}  // namespace melete
