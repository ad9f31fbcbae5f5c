#include <fmt/format.h>

#include <chrono>

#include "cli/arguments.h"
#include "cli/joint_embedding_commands.h"
#include "cli/machine_words.h"
#include "cli/terminal.h"
#include "core/base/error.h"
#include "systems/musiclm/embed.h"
#include "systems/musiclm/load.h"
#include "systems/musiclm/search.h"

namespace melete {

int search_command(const std::vector<std::string>& args) {
  std::string run, text, in, like;
  int64_t top = 10;
  MachineWords machine;
  Arguments arguments("search", "what sounds like these words, or like a recording");
  arguments.word("run", run, "run or checkpoint of mulan");
  arguments.optional_word("text", text, "what to look for");
  arguments.option("in", in, "folder that `melete embed` wrote");
  arguments.option("like", like, "recording to look for instead of words");
  arguments.option("top", top, "how many to show").at_least(1);
  machine.describe(arguments);
  arguments.example("search runs/mulan \"a slow sad organ\" --in embeddings");
  arguments.example("search runs/mulan --like song.wav --in embeddings --top 3");
  if (!arguments.parse(args)) return 0;
  if (in.empty()) throw UsageError("--in is missing: a folder that `melete embed` wrote");
  if (text.empty() == like.empty()) throw UsageError("expected words to look for, or --like FILE");

  const musiclm::LoadedMulan mulan = musiclm::load_mulan(run, machine.start());
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  const auto opening = Clock::now();
  const musiclm::OpenedEmbeddings all(in);
  const double opened = seconds_since(opening);
  require(all.identity() == mulan.embedding->identity(),
          "[search] {} was made by another model than {}; embed anew with this one", in, mulan.path);
  if (like.empty()) say_cut(*mulan.embedding, {text});
  const at::Tensor query = (like.empty() ? mulan.embedding->embed_text({text})
                                         : musiclm::embed_files(*mulan.embedding, {like}))[0];
  const auto searching = Clock::now();
  const std::vector<musiclm::Match> found = musiclm::nearest(all.vectors(), query, top);
  const double searched = seconds_since(searching);
  TextTable table({"", "score", "what", "text"});
  for (size_t i = 0; i < found.size(); ++i) {
    const musiclm::EmbeddedItem item = all.item(found[i].row);
    table.row({std::to_string(i + 1), fmt::format("{:+.3f}", found[i].score), item.path, item.text});
  }
  fmt::print("{}\n{} rows in {}, opened in {}\n", table.text(), all.size(), human_seconds(searched),
             human_seconds(opened));
  return 0;
}

}  // namespace melete
