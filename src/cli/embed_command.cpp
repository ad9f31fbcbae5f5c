#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "cli/arguments.h"
#include "cli/joint_embedding_commands.h"
#include "cli/machine_words.h"
#include "cli/terminal.h"
#include "core/base/error.h"
#include "systems/musiclm/embed.h"
#include "systems/musiclm/load.h"

namespace melete {

namespace {

// A file with a text a line, or what is said of recordings.
std::vector<musiclm::EmbeddedItem> read_texts(const std::string& from, const JointEmbedding& embedding) {
  std::vector<musiclm::EmbeddedItem> items;
  if (std::filesystem::path(from).extension() == ".txt") {
    std::ifstream file(from);
    require(file.good(), "[embed] there is no file {}", from);
    for (std::string line; std::getline(file, line);)
      if (!line.empty()) items.push_back({"", line, 0});
  } else {
    for (const ManifestEntry& entry : load_entries(from))
      if (const auto labels = musiclm::labels_of(entry.text, entry.tags); !labels.empty())
        items.push_back({entry.path, labels.front().words, entry.frames});
  }
  const size_t all = items.size();
  std::erase_if(items, [&](const musiclm::EmbeddedItem& item) {
    const bool wordless = embedding.fit(item.text).wordless;
    if (wordless)
      fmt::print(stderr, "melete: left out {}`{}`: it has no words\n",
                 item.path.empty() ? "" : item.path + ": ", item.text);
    return wordless;
  });
  require(!items.empty(), "[embed] there are no texts with words in {}", from);
  if (items.size() < all)
    fmt::print(stderr, "melete: {} of {} texts have no words and are left out\n", all - items.size(), all);
  return items;
}

}  // namespace

void say_cut(const JointEmbedding& embedding, const std::vector<std::string>& texts) {
  const auto cut = std::count_if(texts.begin(), texts.end(),
                                 [&](const std::string& text) { return embedding.fit(text).cut; });
  if (cut > 0)
    fmt::print(stderr, "melete: {} of {} texts are longer than what the model reads, and cut\n", cut,
               texts.size());
}

int embed_command(const std::vector<std::string>& args) {
  std::string run, data, out, side = "audio";
  MachineWords machine;
  musiclm::EmbedOptions options;
  Arguments arguments("embed",
                      "recordings or texts to vectors of a joint space, for `search` and other programs");
  arguments.word("run", run, "run or checkpoint of mulan");
  arguments.option("data", data, "folder of recordings or manifest; of texts also a .txt with one a line");
  arguments.option("out", out, "folder to write: embeddings.npy, embeddings.safetensors, items.jsonl");
  arguments.option("side", side, "what is embedded").one_of({"audio", "text"});
  arguments.option("batch", options.batch, "items that are embedded at once").at_least(1);
  arguments.option("save_every", options.save_every, "items between two saves: what a kill can cost")
      .at_least(1);
  machine.describe(arguments);
  arguments.alias("o", "out");
  arguments.example("embed runs/mulan --data music -o embeddings");
  arguments.example("embed runs/mulan --data captions.txt --side text -o texts");
  if (!arguments.parse(args)) return 0;
  if (data.empty()) throw UsageError("--data is missing: a folder or manifest of recordings");
  if (out.empty()) throw UsageError("expected -o FOLDER, got none; for example -o embeddings");

  const musiclm::LoadedMulan mulan = musiclm::load_mulan(run, machine.start());
  std::vector<SkippedFile> skipped;
  const std::vector<ManifestEntry> entries =
      side == "audio" ? load_entries(data, &skipped) : std::vector<ManifestEntry>();
  const std::vector<musiclm::EmbeddedItem> texts =
      side == "text" ? read_texts(data, *mulan.embedding) : std::vector<musiclm::EmbeddedItem>();
  std::vector<std::string> words;
  for (const musiclm::EmbeddedItem& item : texts) words.push_back(item.text);
  say_cut(*mulan.embedding, words);
  for (const SkippedFile& file : skipped)
    fmt::print(stderr, "melete: skipped {}: {}\n", file.path, file.reason);
  ProgressBar bar("embedding", static_cast<int64_t>(entries.size() + texts.size()),
                  side == "audio" ? "recordings" : "texts");
  options.progress = [&](int64_t done, int64_t) { bar.update(done); };
  options.on_failure = [&](const std::string& path, const std::string& message) {
    bar.print(fmt::format("skipped {}: {}", path, message));
  };
  const auto begin = std::chrono::steady_clock::now();
  const musiclm::EmbedResult result = side == "audio"
                                          ? musiclm::embed_recordings(*mulan.embedding, entries, out, options)
                                          : musiclm::embed_texts(*mulan.embedding, texts, out, options);
  bar.finish();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  fmt::print("{} embedded", result.made);
  if (result.seconds_of_sound > 0)
    fmt::print(" ({} of sound, {:.0f} times real time)", human_seconds(result.seconds_of_sound),
               result.seconds_of_sound / seconds);
  if (result.already > 0) fmt::print(", {} were there already", result.already);
  const int64_t unusable = result.failed + static_cast<int64_t>(skipped.size());
  if (unusable > 0) fmt::print(", {} skipped", unusable);
  fmt::print(" in {}\n", out);
  return 0;
}

}  // namespace melete
