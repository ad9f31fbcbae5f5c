#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "cli/arguments.h"
#include "cli/joint_embedding_commands.h"
#include "cli/machine_words.h"
#include "cli/terminal.h"
#include "config/nearest.h"
#include "core/base/error.h"
#include "data/recordings.h"
#include "systems/musiclm/embed.h"
#include "systems/musiclm/evaluate.h"
#include "systems/musiclm/load.h"

namespace melete {

namespace {

std::string retrieval_table(const musiclm::RetrievalTable& found) {
  std::vector<std::string> headers = {fmt::format("among {}", found.among)};
  for (const int64_t k : found.ks) headers.push_back(fmt::format("recall at {}", k));
  headers.push_back("median rank");
  TextTable table(headers);
  const auto row = [&](const std::string& name, const musiclm::RetrievalFigures& figures) {
    std::vector<std::string> cells = {name};
    for (const double recall : figures.recall) cells.push_back(fmt::format("{:.1f} %", 100 * recall));
    cells.push_back(fmt::format("{:.1f}", figures.median_rank));
    table.row(cells);
  };
  row("text finds sound", found.text_to_audio);
  row("sound finds text", found.audio_to_text);
  row("guessing", found.chance);
  return table.text();
}

std::string zero_shot_table(const musiclm::ZeroShotTable& found) {
  std::vector<std::string> headers = {"heard", "items", "named right"};
  for (const std::string& label : found.labels) headers.push_back("as " + label);
  TextTable table(headers);
  for (size_t i = 0; i < found.labels.size(); ++i) {
    const at::Tensor row = found.confusion[static_cast<int64_t>(i)];
    const auto count = row.sum().item<int64_t>(), right = row[static_cast<int64_t>(i)].item<int64_t>();
    std::vector<std::string> cells = {
        found.labels[i], std::to_string(count),
        count == 0
            ? ""
            : fmt::format("{:.0f} %", 100.0 * static_cast<double>(right) / static_cast<double>(count))};
    for (int64_t label = 0; label < row.size(0); ++label)
      cells.push_back(std::to_string(row[label].item<int64_t>()));
    table.row(cells);
  }
  return table.text();
}

// What is said of each recording is all that counts here; those of which nothing is said are left out, and
// counted.
void leave_out_silent(std::vector<ManifestEntry>& entries, const JointEmbedding& embedding) {
  const size_t all = entries.size(), silent = std::erase_if(entries, [](const ManifestEntry&entry) {
                                       return musiclm::labels_of(entry.text, entry.tags).empty();
                                     });
  const size_t wordless = std::erase_if(entries, [&](const ManifestEntry& entry) {
    const auto labels = musiclm::labels_of(entry.text, entry.tags);
    return std::any_of(labels.begin(), labels.end(),
                       [&](const musiclm::Label& label) { return embedding.fit(label.words).wordless; });
  });
  if (silent + wordless > 0)
    fmt::print(stderr,
               "melete: of {} recordings {} have no text and {} one without words; they are left out\n", all,
               silent, wordless);
}

// What the run held out: of its own data by its split, or data of their own.
std::string held_out_data(const musiclm::LoadedMulan& mulan, const std::string& data) {
  namespace fs = std::filesystem;
  if (mulan.valid_from.empty()) return data.empty() ? mulan.data_from : data;
  std::error_code none;
  require(
      data.empty() || data == mulan.valid_from || fs::equivalent(data, mulan.valid_from, none),
      "[held_out] {} held nothing out of its data: it was validated on {}; leave --data out, or --held_out",
      mulan.path, mulan.valid_from);
  return mulan.valid_from;
}

int eval_mulan_command(const std::vector<std::string>& args) {
  std::string from, data;
  std::vector<std::string> labels, templates;
  int64_t among = 64, batch = 8, seed = 0;
  MachineWords machine;
  bool held_out = false;
  Arguments arguments("eval mulan",
                      "what a joint embedding finds among captioned recordings, and what it names");
  arguments.option("from", from, "run or checkpoint of mulan");
  arguments.option("data", data, "captioned recordings: a folder or manifest");
  arguments.option(
      "held_out", held_out,
      "only what the run held out of these, where they are its own data; without --data: its own");
  arguments.option("among", among, "candidates of a query; the table over all of them comes besides")
      .at_least(2);
  arguments.option("labels", labels, "for a zero-shot table: labels of which a caption holds exactly one");
  arguments.option("templates", templates, "sentences that labels are put into; default: those of the run");
  arguments.option("batch", batch, "recordings that are embedded at once").at_least(1);
  arguments.option("seed", seed, "of the groups of candidates").at_least(0);
  machine.describe(arguments);
  arguments.example(
      "eval mulan --from runs/mulan --data music --held_out --labels \"plucked string,bell,organ\"");
  if (!arguments.parse(args)) return 0;
  if (from.empty()) throw UsageError("--from is missing: a run or checkpoint of mulan");
  if (labels.size() == 1)
    throw UsageError("expected --labels with at least two, for example \"bell melody,organ melody\"");
  if (data.empty() && !held_out)
    throw UsageError("--data is missing: captioned recordings; or --held_out for the run's own");

  const musiclm::LoadedMulan mulan = musiclm::load_mulan(from, machine.start());
  if (held_out) data = held_out_data(mulan, data);
  std::vector<ManifestEntry> entries = load_entries(data);
  leave_out_silent(entries, *mulan.embedding);
  if (held_out && mulan.valid_from.empty())
    entries = split(entries, mulan.valid_fraction, mulan.split_seed).valid;
  require(entries.size() >= 2, "[eval] expected at least 2 captioned recordings in {}, got {}", data,
          entries.size());
  musiclm::EvaluatedPairs pairs;
  std::vector<at::Tensor> audio, text;
  std::vector<std::string> read;
  {
    ProgressBar bar("embedding", static_cast<int64_t>(entries.size()), "recordings");
    for (size_t first = 0; first < entries.size(); first += static_cast<size_t>(batch)) {
      const size_t end = std::min(first + static_cast<size_t>(batch), entries.size());
      std::vector<std::string> paths, sentences;
      for (size_t i = first; i < end; ++i) {
        paths.push_back(entries[i].path);
        const musiclm::Label said = musiclm::labels_of(entries[i].text, entries[i].tags).front();
        pairs.texts.push_back(said.words);
        sentences.push_back(musiclm::in_template(mulan.templates.of(said).front(), said.words));
      }
      audio.push_back(musiclm::embed_files(*mulan.embedding, paths, batch));
      text.push_back(mulan.embedding->embed_text(sentences));
      read.insert(read.end(), sentences.begin(), sentences.end());
      bar.update(static_cast<int64_t>(end));
    }
    bar.finish();
  }
  say_cut(*mulan.embedding, read);
  pairs.audio = at::cat(audio);
  pairs.text = at::cat(text);
  fmt::print("{} (step {}) on {} recordings\n\n", mulan.path, mulan.step, entries.size());
  const auto count = static_cast<int64_t>(entries.size());
  if (among < count)
    fmt::print("{}\n",
               retrieval_table(musiclm::evaluate_retrieval(pairs, among, static_cast<uint64_t>(seed))));
  fmt::print("{}", retrieval_table(musiclm::evaluate_retrieval(pairs, 0, static_cast<uint64_t>(seed))));
  if (labels.empty()) return 0;
  const musiclm::ZeroShotTable named = musiclm::evaluate_zero_shot(
      pairs,
      musiclm::ZeroShot(*mulan.embedding, labels, templates.empty() ? mulan.templates.for_names() : templates,
                        mulan.embedding->scale()));
  fmt::print("\n{}{:.1f} % named right; guessing {:.1f} %, always the most frequent {:.1f} %; {} left out\n",
             zero_shot_table(named), 100 * named.accuracy(), 100.0 / static_cast<double>(labels.size()),
             100 * named.majority(), named.left_out);
  return 0;
}

}  // namespace

int eval_command(const std::vector<std::string>& args) {
  struct Part {
    std::string name, help;
    int (*run)(const std::vector<std::string>&);
  };
  static const std::vector<Part> parts = {
      {"mulan", "retrieval and zero-shot tables of a joint embedding", eval_mulan_command},
  };
  std::vector<std::string> names;
  TextTable list({"", ""});
  for (const Part& part : parts) {
    names.push_back(part.name);
    list.row({"  " + part.name, part.help});
  }
  if (args.empty()) throw UsageError(fmt::format("eval what? There is: {}", fmt::join(names, ", ")));
  if (args.front() == "--help" || args.front() == "-h") {
    fmt::print("usage: melete eval <what> [options]\n\n{}\n'melete eval <what> --help' tells more\n",
               list.text());
    return 0;
  }
  for (const Part& part : parts)
    if (part.name == args.front()) return part.run({args.begin() + 1, args.end()});
  throw UsageError(fmt::format("`eval {}` is not known; did you mean `eval {}`?", args.front(),
                               nearest_word(args.front(), names)));
}

}  // namespace melete
