// What stands behind the server's routes: paths, access, blind tests, tools, jobs, reports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "base/temporary_folder.h"
#include "config/schema.h"
#include "core/base/error.h"
#include "core/base/shell_line.h"
#include "io/base/safetensors.h"
#include "studio/access.h"
#include "studio/blind_test.h"
#include "studio/jobs.h"
#include "studio/model_card.h"
#include "studio/model_files.h"
#include "studio/report.h"
#include "studio/run_folder.h"
#include "studio/run_index.h"
#include "studio/safe_path.h"
#include "studio/tools.h"

namespace melete {
namespace studio_parts_test {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

TEST(SafePath, StaysInside) {
  TemporaryFolder folder;
  const fs::path root = fs::canonical(folder.path()) / "runs";
  fs::create_directories(root / "a");
  append(root / "a" / "x.txt", "x");
  append(root / ".hidden", "x");
  append(root.parent_path() / "secret.txt", "x");
  fs::create_symlink(root.parent_path() / "secret.txt", root / "link.txt");
  fs::create_directory_symlink(root.parent_path(), root / "up");
  fs::create_symlink(root / "a" / "x.txt", root / "inner.txt");
  EXPECT_TRUE(path_inside(root, "a/x.txt"));
  EXPECT_TRUE(path_inside(root, "."));
  EXPECT_TRUE(path_inside(root, "inner.txt"));  // a link that stays inside
  for (const char* bad : {"", "/etc/passwd", "..", "../secret.txt", "a/../../secret.txt", "a/..", "./a",
                          "link.txt", "up/secret.txt", ".hidden", "none.txt", "a//x.txt/", "~/x"})
    EXPECT_FALSE(path_inside(root, bad)) << bad;
  EXPECT_FALSE(path_inside(root, std::string("a\0/x.txt", 8)));
  EXPECT_FALSE(is_inside("/runs", "/runs-other/x"));
}

AccessDecision asked(const AccessRules& rules, const std::map<std::string, std::string>& headers,
                     const std::string& token = "") {
  return decide_access(
      rules,
      [&](const char* name) {
        const auto found = headers.find(name);
        return found == headers.end() ? "" : found->second;
      },
      [&](const char* name) { return std::string(name) == "token" ? token : ""; });
}

TEST(Access, OnlyThisMachineAndItsOwnPage) {
  const AccessRules rules{"127.0.0.1", 7007, ""};
  EXPECT_EQ(asked(rules, {{"Host", "localhost:7007"}}).status, 200);
  EXPECT_EQ(asked(rules, {{"Host", "[::1]:7007"}}).status, 200);
  EXPECT_EQ(asked(rules, {{"Host", "localhost:7007"}, {"Origin", "http://localhost:7007"}}).status, 200);
  EXPECT_EQ(asked(rules, {{"Host", "localhost:7007"}, {"Origin", "http://evil.example"}}).status, 403);
  EXPECT_EQ(asked(rules, {{"Host", "localhost:7007"}, {"Origin", "null"}}).status, 403);
  // Names that were pointed here.
  for (const std::string host : {"evil.example:7007", "127.0.0.1.evil.example:7007", "127.evil:7007"})
    EXPECT_EQ(asked(rules, {{"Host", host}, {"Origin", "http://" + host}}).status, 403) << host;
  EXPECT_EQ(asked(rules, {{"Host", "127.0.1.1:7007"}}).status, 200);
  EXPECT_EQ(asked(rules, {{"Host", "localhost:7007"}, {"Sec-Fetch-Site", "cross-site"}}).status, 403);
  EXPECT_EQ(asked(rules, {}).status, 400);
}

TEST(Access, AnyOtherAddressNeedsTheToken) {
  const AccessRules rules{"0.0.0.0", 7007, "secret"};
  EXPECT_EQ(asked(rules, {{"Host", "box:7007"}}).status, 401);
  EXPECT_EQ(asked(rules, {{"Host", "box:7007"}, {"Authorization", "Bearer secret"}}).status, 200);
  EXPECT_EQ(asked(rules, {{"Host", "box:7007"}, {"Authorization", "Bearer secre"}}).status, 401);
  EXPECT_EQ(asked(rules, {{"Host", "box:7007"}, {"Authorization", "Bearer secretsecret"}}).status, 401);
  EXPECT_EQ(asked(rules, {{"Host", "box:7007"}, {"Cookie", "a=b; melete_studio=secret"}}).status, 200);
  const AccessDecision by_line = asked(rules, {{"Host", "box:7007"}}, "secret");
  EXPECT_EQ(by_line.status, 200);
  EXPECT_TRUE(by_line.set_cookie);
  EXPECT_EQ(asked(rules, {{"Host", "box:7007"}}, "wrong").status, 401);
}

TEST(BlindTest, Statistics) {
  const Share share = wilson_interval(8, 10);
  EXPECT_NEAR(share.low, 0.4902, 1e-3);
  EXPECT_NEAR(share.high, 0.9433, 1e-3);
  EXPECT_NEAR(chance_of_guessing(8, 10), 0.0546875, 1e-9);
  EXPECT_NEAR(chance_of_guessing(0, 10), 1, 1e-12);
  const MeanInterval mean = mean_interval({60, 70, 80});
  EXPECT_DOUBLE_EQ(mean.mean, 70);
  EXPECT_NEAR(mean.high - mean.mean, 4.303 * 10 / std::sqrt(3.0), 1e-9);
}

TEST(BlindTest, IsKeptAndReadAgainAndWrongOnesAreRefused) {
  TemporaryFolder folder;
  const fs::path kept = fs::path(folder.path()) / "studio" / "blind";
  BlindTests tests(kept);
  const auto trial = [](const char* x, const char* answer) {
    return ordered_json{{"item", "i"}, {"a", "codec"}, {"b", "original"}, {"x", x}, {"answer", answer}};
  };
  const ordered_json test = tests.add(
      {{"kind", "abx"}, {"trials", {trial("a", "a"), trial("b", "a"), trial("b", "b")}}, {"more", 1}});
  EXPECT_EQ(test["result"]["abx"][0]["hits"], 2);
  EXPECT_FALSE(test.contains("more"));
  tests.add(
      {{"kind", "scale"}, {"trials", {{{"item", "i"}, {"ratings", {{"codec", 40}, {"original", 95}}}}}}});
  append(kept / "broken.json", "{");
  const ordered_json all = tests.all();
  EXPECT_EQ(all["tests"].size(), 2u);
  EXPECT_EQ(all["together"]["abx"][0]["trials"], 3);
  EXPECT_EQ(all["together"]["scale"].size(), 2u);
  for (const char* bad : {R"([])", R"({"kind":"abx","trials":[]})", R"({"kind":"x","trials":[{}]})",
                          R"({"kind":"abx","trials":[{"item":"i","a":"p","b":"q","x":"c","answer":"a"}]})",
                          R"({"kind":"scale","trials":[{"item":"i","ratings":{"p":101}}]})",
                          R"({"kind":"scale","trials":[{"item":"i","ratings":{"p":"much"}}]})"})
    EXPECT_THROW(tests.add(ordered_json::parse(bad)), Error) << bad;
}

struct Wishes {
  std::string from, text, voice, notes, strip, method = "euler";
  int64_t steps = 4;
  double guidance = 1;
  bool grid = false;
  std::vector<std::string> compare;
  std::vector<double> spans;
};
void describe(Schema& s, Wishes& w) {
  s.option("from", w.from, "run or checkpoint of voicebox");
  s.option("text", w.text, "what to say");
  s.option("voice", w.voice, "recording whose voice is to speak");
  s.option("notes", w.notes, "file with more words");
  s.option("strip", w.strip, "also write a filmstrip to this PNG");
  s.option("method", w.method, "solver").one_of({"euler", "rk4"});
  s.option("steps", w.steps, "of it").at_least(1);
  s.option("guidance", w.guidance, "how far").unit("x");
  s.option("grid", w.grid, "several in one");
  s.option("compare", w.compare, "recordings: how far it is from each");
  s.option("spans", w.spans, "FROM,TO");
}

StudioTool example_tool() {
  Wishes wishes;
  const Schema schema = schema_of(wishes);
  return {"voicebox", "speech", {"generate", "voicebox"}, {".wav", ".flac"}, form_of(schema)};
}

TEST(Tools, FormsComeFromTheTable) {
  const ordered_json form = example_tool().options;
  std::map<std::string, std::string> kinds;
  for (const auto& one : form) kinds[one["name"]] = one["kind"];
  const std::map<std::string, std::string> expected = {
      {"from", "run"},     {"text", "text"},         {"voice", "recording"}, {"notes", "file"},
      {"strip", "output"}, {"method", "choice"},     {"steps", "number"},    {"guidance", "number"},
      {"grid", "flag"},    {"compare", "recording"}, {"spans", "list"}};
  EXPECT_EQ(kinds, expected);
  EXPECT_EQ(form[0]["tasks"], ordered_json::array({"voicebox"}));
}

TEST(Tools, TheHelpSaysWhatAModelMustBeOf) {
  struct Parts {
    std::string codec, tokenizer, text, stage, fine, mulan;
  } p;
  Schema schema;
  schema.option("codec", p.codec, "codec; default: the one they were trained with");
  schema.option("tokenizer", p.tokenizer, "semantic tokenizer; default: the one they were trained with");
  schema.option("text", p.text, "frozen text encoder; default: where the run says");
  schema.option("stage", p.stage, "run or checkpoint of the coarse stage");
  schema.option("fine", p.fine, "run of its fine stage; without one, sound is coarse");
  schema.option("embedding", p.mulan, "run of mulan; default: the one they were trained with");
  const auto expected = ordered_json::parse(
      R"([["soundstream", "encodec"], ["semantic-tokenizer"], ["t5"], ["coarse"], ["fine"], ["mulan"]])");
  const ordered_json form = form_of(schema);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(form[i]["tasks"], expected[i]) << form[i].dump();
}

TEST(Tools, WordsNameNothingOutsideTheFolder) {
  TemporaryFolder folder;
  const fs::path root = fs::canonical(folder.path());
  make_run(root / "tts", 2);
  const auto words = [&](const ordered_json& settings) {
    return job_request(example_tool(), settings, "", root, "runs").words;
  };
  EXPECT_EQ(
      words({{"from", "tts"}, {"text", "--no and/or 'yes'"}, {"steps", 8}, {"grid", true}, {"voice", ""}}),
      (std::vector<std::string>{"generate", "voicebox", "--from=runs/tts", "--text=--no and/or 'yes'",
                                "--steps=8", "--grid=true"}));
  for (const ordered_json& bad : std::vector<ordered_json>{{{"from", "/etc"}},
                                                           {{"from", "../x"}},
                                                           {{"voice", "/etc/hostname"}},
                                                           {{"text", "/etc/hostname"}},
                                                           {{"strip", "/tmp/x.png"}},
                                                           {{"unknown", 1}},
                                                           {{"compare", {"/etc/hostname"}}},
                                                           {{"compare", "/etc/hostname"}},
                                                           {{"spans", {"/etc/hostname"}}},
                                                           {{"spans", "a,/etc/hostname"}},
                                                           {{"text", ordered_json::object()}},
                                                           ordered_json::array()})
    EXPECT_THROW(words(bad), Error) << bad.dump();
  EXPECT_THROW(job_request(example_tool(), ordered_json::object(), ".exe", root, "runs"), Error);
}

TEST(Tools, AnOutputIsAskedForAndGoesToTheFolderOfTheJob) {
  TemporaryFolder folder;
  const fs::path root = fs::canonical(folder.path());
  const JobRequest with = job_request(example_tool(), {{"strip", "true"}}, "", root, "runs"),
                   without = job_request(example_tool(), {{"strip", false}}, "", root, "runs");
  EXPECT_EQ(with.files, (std::vector<std::pair<std::string, std::string>>{{"strip", "strip.png"}}));
  EXPECT_TRUE(without.files.empty());
  EXPECT_EQ(with.words, without.words);
  JobQueue queue("/bin/sh", root / "made", {});
  const std::string id =
      queue.add({"shell", {}, {"-c", "echo \"$@\"; touch \"${2#--strip=}\""}, ".txt", false, with.files});
  EXPECT_TRUE(queue.wait_for(id, 20));
  EXPECT_EQ(queue.job(id)["results"], ordered_json::array({id + "/strip.png"}));
  EXPECT_THAT(queue.job(id)["command"].get<std::string>(),
              ::testing::EndsWith(" --strip=" + (root / "made" / id / "strip.png").string()));
}

TEST(Tools, ANameCanStandForAPath) {
  StudioTool tool = example_tool();
  for (auto& option : tool.options)
    if (option["name"] == "voice") option["names"] = ordered_json::array();
  std::vector<std::string> names;
  tool.names = [&] { return names; };
  TemporaryFolder folder;
  const fs::path root = fs::canonical(folder.path());
  EXPECT_THROW(job_request(tool, {{"voice", "anna"}}, "", root, "runs"), Error);
  names = {"anna"};  // kept meanwhile
  EXPECT_EQ(options_now(tool)[2]["names"], ordered_json::array({"anna"}));
  EXPECT_EQ(job_request(tool, {{"voice", "anna"}}, "", root, "runs").words.back(), "--voice=anna");
  EXPECT_THROW(job_request(tool, {{"voice", "berta"}}, "", root, "runs"), Error);
}

TEST(Jobs, ShellLineCanBePasted) {
  EXPECT_EQ(shell_line({"melete", "generate", "--text=it's a \"test\" $HOME"}),
            "melete generate '--text=it'\\''s a \"test\" $HOME'");
}

// The shell stands for the program: its words are -c SCRIPT -o FILE.
ordered_json run_job(JobQueue& queue, const std::string& script, double seconds = 20) {
  const std::string id = queue.add({"shell", {}, {"-c", script}, ".txt"});
  EXPECT_TRUE(queue.wait_for(id, seconds));
  return queue.job(id);
}

TEST(Jobs, RunFailAndAreKept) {
  TemporaryFolder folder;
  const fs::path made = fs::path(folder.path()) / "made";
  {
    JobQueue queue("/bin/sh", made, {});
    const ordered_json good =
        run_job(queue, "echo 'coarse  : 40% (4/10 steps, 1 s)' >&2; echo well; echo words > \"$1\"");
    EXPECT_EQ(good["state"], "done");
    EXPECT_EQ(good["share"], 0.4);
    EXPECT_EQ(good["part"], "coarse");
    EXPECT_EQ(good["lines"], ordered_json::array({"well"}));
    ASSERT_EQ(good["results"].size(), 1u);
    EXPECT_TRUE(fs::exists(made / good["results"][0].get<std::string>()));
    const ordered_json bad = run_job(queue, "echo 'melete: [x] expected y' >&2; exit 1");
    EXPECT_EQ(bad["state"], "failed");
    EXPECT_EQ(bad["lines"].back(), "melete: [x] expected y");
    EXPECT_EQ(run_job(queue, "kill -9 $$")["state"], "failed");
  }
  JobQueue again("/bin/sh", made, {});
  EXPECT_EQ(again.all().size(), 3u);
}

// As studios before left them, in whatever order the folder has them.
TEST(Jobs, TheOldestResultsMakeRoom) {
  TemporaryFolder folder;
  const fs::path made = fs::path(folder.path()) / "made";
  const auto write = [&](int64_t i) {
    const std::string id = fmt::format("{}-1", 1000 + (i * 7) % 12);
    fs::create_directories(made / id);
    append(made / id / "result.txt", std::string(1000, 'x'));
    append(made / id / "job.json",
           fmt::format(R"({{"id":"{}","created":{},"results":[]}})", id, id.substr(0, 4)));
    fs::last_write_time(made / id,
                        fs::file_time_type::clock::now() - std::chrono::hours(2000 - std::stoi(id)));
  };
  const auto ids = [&](const JobQueue& queue) {
    std::vector<std::string> list;
    for (const auto& job : queue.all()) list.push_back(job["id"]);
    return list;
  };
  for (int64_t i = 0; i < 12; ++i) write(i);
  {
    const JobQueue queue("/bin/sh", made, {.kept = 4});
    EXPECT_EQ(ids(queue), (std::vector<std::string>{"1011-1", "1010-1", "1009-1", "1008-1"}));
    EXPECT_EQ(std::distance(fs::directory_iterator(made), fs::directory_iterator()), 4);
  }
  JobQueue queue("/bin/sh", made, {.kept = 4, .kept_on_disk = 2500});
  EXPECT_EQ(ids(queue), (std::vector<std::string>{"1011-1", "1010-1"}));
  const std::string id = run_job(queue, "head -c 2400 /dev/zero > \"$1\"")["id"];
  for (int i = 0; i < 100 && fs::exists(made / "1010-1"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(ids(queue), std::vector<std::string>{id});  // the newest stays, however large
  EXPECT_TRUE(fs::exists(made / id / "result.txt"));
  EXPECT_FALSE(fs::exists(made / "1011-1"));
}

TEST(Jobs, AreCancelledWithAllThatTheyStarted) {
  TemporaryFolder folder;
  JobQueue queue("/bin/sh", fs::path(folder.path()) / "made", {.waiting = 2});
  const auto add = [&](const char* script) { return queue.add({"shell", {}, {"-c", script}, ".txt"}); };
  const std::string running = add("sleep 100 & sleep 100"), waiting = add("true");
  for (int i = 0; i < 100 && queue.job(running)["state"] != "running"; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  add("true");
  EXPECT_THROW(add("true"), Error);  // too many wait
  EXPECT_TRUE(queue.cancel(waiting));
  EXPECT_EQ(queue.job(waiting)["state"], "cancelled");
  EXPECT_TRUE(queue.cancel(running));
  EXPECT_TRUE(queue.wait_for(running, 10));
  EXPECT_EQ(queue.job(running)["state"], "cancelled");
  EXPECT_TRUE(queue.cancel(running));  // it stays as it is
  EXPECT_EQ(queue.job(running)["state"], "cancelled");
  EXPECT_FALSE(queue.cancel("none"));
}

TEST(Jobs, EndWhenTheyTakeTooLongOrTooMuch) {
  TemporaryFolder folder;
  JobQueue queue("/bin/sh", fs::path(folder.path()) / "made", {.seconds = 0.5, .memory_bytes = 64 << 20});
  const ordered_json slow = run_job(queue, "sleep 100");
  EXPECT_EQ(slow["state"], "failed");
  EXPECT_THAT(slow["lines"].back().get<std::string>(), HasSubstr("longer than"));
  EXPECT_EQ(run_job(queue, "x=$(head -c 200000000 /dev/zero | tr '\\0' a); echo ${#x}")["state"], "failed");
}

// A shell that stands for `melete studio work`: each line is a job, and what it was told stays with it.
class StayingShell {
 public:
  explicit StayingShell(const fs::path& folder) : path(folder / "program") {
    append(
        path,
        "#!/bin/sh\n"
        "echo \"started $$ $*\"\n"
        "count=0\n"
        "while read -r line; do\n"
        "  count=$((count + 1))\n"
        "  echo \"job $count of $$: $line\"\n"
        "  case \"$line\" in\n"
        "    *sleep*) sleep 100;;\n"
        "    *die*) kill -9 $$;;\n"
        "    *wrong*) printf '\\036{\"code\":1,\"kept\":[]}\\n'; continue;;\n"
        "    *usage*) printf '\\036{\"code\":2,\"kept\":[]}\\n'; continue;;\n"
        "  esac\n"
        "  printf '\\036{\"code\":0,\"kept\":[{\"kind\":\"codec\",\"path\":\"c\",\"bytes\":%d}]}\\n' $count\n"
        "done\n");
    fs::permissions(path, fs::perms::owner_all);
  }
  const fs::path path;
};

TEST(Jobs, OneProcessStaysAndKeepsItsModels) {
  TemporaryFolder folder;
  const StayingShell shell(fs::canonical(folder.path()));
  JobLimits limits;
  limits.kept_models = 3;
  limits.kept_bytes = 2'000'000'000;
  limits.kept_seconds = 0.4;
  JobQueue queue(shell.path.string(), fs::path(folder.path()) / "made", limits);
  const auto run = [&](const char* word) {
    const std::string id = queue.add({"shell", {}, {word}, ".txt"});
    EXPECT_TRUE(queue.wait_for(id, 20));
    return queue.job(id);
  };
  const ordered_json first = run("one"), second = run("two words");
  EXPECT_EQ(first["state"], "done");
  EXPECT_THAT(first["lines"][0].get<std::string>(), HasSubstr("studio work --models=3 --memory=2"));
  EXPECT_THAT(first["lines"][1].get<std::string>(), HasSubstr(R"(["one","-o",)"));
  ASSERT_EQ(second["lines"].size(), 1u);  // the same process
  EXPECT_THAT(second["lines"][0].get<std::string>(), HasSubstr(R"(["two words")"));
  EXPECT_THAT(second["lines"][0].get<std::string>(), ::testing::StartsWith("job 2 of "));
  EXPECT_EQ(queue.kept()[0]["bytes"], 2);
  // Words that were wrong leave the models alone; whatever else went wrong goes with its process.
  EXPECT_EQ(run("usage")["state"], "failed");
  EXPECT_EQ(run("three")["lines"].size(), 1u);
  EXPECT_EQ(run("wrong")["state"], "failed");
  EXPECT_EQ(queue.kept().size(), 0u);
  EXPECT_EQ(run("again")["lines"].size(), 2u);  // a new one
  const ordered_json dead = run("die");
  EXPECT_EQ(dead["state"], "failed");
  EXPECT_THAT(dead["lines"].back().get<std::string>(), HasSubstr("signal 9"));
  EXPECT_EQ(run("and again")["state"], "done");
  EXPECT_EQ(queue.kept().size(), 1u);
  queue.forget_kept();
  for (int i = 0; i < 100 && !queue.kept().empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(queue.kept().size(), 0u);
  EXPECT_EQ(run("once more")["lines"].size(), 2u);
  for (int i = 0; i < 100 && !queue.kept().empty(); ++i)  // nobody asks for a while
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(queue.kept().size(), 0u);
}

TEST(Jobs, AProcessThatStaysIsCancelledWithItsJob) {
  TemporaryFolder folder;
  const StayingShell shell(fs::canonical(folder.path()));
  JobLimits limits;
  limits.kept_models = 1;
  JobQueue queue(shell.path.string(), fs::path(folder.path()) / "made", limits);
  const std::string id = queue.add({"shell", {}, {"sleep"}, ".txt"});
  for (int i = 0; i < 200 && queue.job(id)["lines"].size() < 2; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(queue.cancel(id));
  EXPECT_TRUE(queue.wait_for(id, 10));
  EXPECT_EQ(queue.job(id)["state"], "cancelled");
  const std::string next = queue.add({"shell", {}, {"next"}, ".txt"});
  EXPECT_TRUE(queue.wait_for(next, 10));
  EXPECT_EQ(queue.job(next)["state"], "done");
  EXPECT_EQ(queue.job(next)["lines"].size(), 2u);
}

TEST(ModelFiles, FilesOfTheirOwnAndCheckpointsOfRuns) {
  TemporaryFolder folder;
  const fs::path root = fs::canonical(folder.path());
  make_run(root / "codec", 2);
  const auto write = [](const fs::path& path, const std::string& task, int64_t step) {
    write_safetensors(path.string(), {},
                      {{"melete.meta", fmt::format(R"({{"task":"{}","step":{}}})", task, step)}});
  };
  write(root / "tokenizer.safetensors", "semantic-tokenizer", 0);
  write(root / "codec" / "checkpoints" / "step_00000002.safetensors", "soundstream", 2);
  append(root / "broken.safetensors", "no such thing");
  write_safetensors((root / "weights.safetensors").string(), {}, {});  // of another program
  fs::create_symlink(root / "tokenizer.safetensors", root / "link.safetensors");
  RunIndex index(root);
  index.look();
  const ordered_json files = model_files(index);
  ASSERT_EQ(files.size(), 2u) << files.dump(1);
  EXPECT_EQ(files[0]["path"], "tokenizer.safetensors");
  EXPECT_EQ(files[0]["task"], "semantic-tokenizer");
  EXPECT_EQ(files[0]["run"], "");
  EXPECT_EQ(files[1]["path"], "codec/checkpoints/step_00000002.safetensors");
  EXPECT_EQ(files[1]["task"], "soundstream");
  EXPECT_EQ(files[1]["step"], 2);
  EXPECT_EQ(files[1]["run"], "codec");
}

TEST(Report, IsThePageWithItsRunsInside) {
  TemporaryFolder folder;
  make_run(fs::path(folder.path()) / "a", 5);
  append(fs::path(folder.path()) / "a" / "metrics.jsonl",
         R"({"kind":"note","step":5,"time":2000,"text":"</script><b>"})"
         "\n");
  const Report report = make_report({.runs = {(fs::path(folder.path()) / "a").string()}});
  EXPECT_EQ(report.files, 3);
  EXPECT_EQ(report.left_out, 0);
  const size_t begin = report.html.find("id=\"report\">") + 12, end = report.html.find("</script>", begin);
  const auto data = ordered_json::parse(report.html.substr(begin, end - begin));
  EXPECT_EQ(data["runs"][0]["notes"][0]["text"], "</script><b>");
  EXPECT_EQ(data["curves"]["a"]["loss/loss"]["y"].size(), 5u);
  EXPECT_EQ(data["samples"]["a"][0]["versions"].size(), 3u);
  EXPECT_EQ(data["files"].size(), 3u);
  EXPECT_THROW(make_report({.runs = {folder.path()}}), Error);
  const auto files_of = [&](const std::string& item) {
    return make_report({.runs = {(fs::path(folder.path()) / "a").string()}, .items = {"none", item}}).files;
  };
  EXPECT_EQ(files_of("piece"), 3);
  EXPECT_EQ(files_of("other"), 0);
  EXPECT_EQ(make_report({.runs = {(fs::path(folder.path()) / "a").string()}, .most_bytes = 10}).left_out, 3);
}

TEST(Report, HasWhatWasExpectedAndTheCommands) {
  TemporaryFolder folder;
  const fs::path run = make_run(fs::path(folder.path()) / "a", 5);
  append(run / "commands.txt",
         "melete train soundstream --out a\nmelete train soundstream --out a --resume\n");
  const auto read = [](const fs::path& path) {
    const ordered_json band{{"x", {2, 10}}, {"low", {1, 2}}, {"high", {3, 4}}};
    return path.filename() == "a" ? ordered_json{{"training", {{"loss", band}}}} : ordered_json();
  };
  const Report report = make_report({.runs = {run.string()}, .expected = read});
  const size_t begin = report.html.find("id=\"report\">") + 12, end = report.html.find("</script>", begin);
  const auto data = ordered_json::parse(report.html.substr(begin, end - begin));
  const auto& band = data["expected"]["a"]["training"]["loss"];
  EXPECT_EQ(band["high"], ordered_json::parse("[3, 4]"));
  EXPECT_EQ(band["seconds"].size(), 2u);
  EXPECT_EQ(data["runs"][0]["commands"].size(), 2u);
  EXPECT_EQ(data["runs"][0]["commands"][1], "melete train soundstream --out a --resume");
}

TEST(ModelCard, SaysWhatTheFilesSay) {
  TemporaryFolder folder;
  const fs::path run = make_run(fs::path(folder.path()) / "codec", 5);
  append(run / "metrics.jsonl",
         R"({"kind":"validation","step":5,"time":1006,"label":"ema","losses":{"mel_distance":1.25}})"
         "\n");
  append(run / "commands.txt", "melete train soundstream --data 'a|b'\n");
  fs::create_directories(run / "eval");
  append(run / "eval" / "figures.tsv", "name\tsi_sdr\n8 quantizers\t4.5\n");
  write_safetensors((run / "checkpoints" / "step_00000005.safetensors").string(), {},
                    {{"melete.meta", R"({"task":"soundstream","step":5,"version":"0.0.7-old"})"}});
  const std::string card = model_card(run.string(), {"melete codec compare --from x"});
  for (const char* part :
       {"# codec", "| what | soundstream |", "5 of 5 steps", "| mel_distance | ema | 1.25",
        "| 8 quantizers | 4.5 |", "| model.channels | `16` |", "2 recordings", "codec 1.00 k",
        "| by | `melete train soundstream --data 'a\\|b'` |", "| trained with | melete 0.0.7-old |",
        "## Use\n\n    melete codec compare --from x\n"})
    EXPECT_THAT(card, HasSubstr(part));
  EXPECT_THROW(model_card(folder.path()), Error);
}

}  // namespace studio_parts_test
}  // namespace melete
