// The ways in which ranks are started: by hand, by SLURM, by Open MPI, on two machines, and wrongly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "data/token_folder.h"
#include "ranks.h"
#include "token_batches.h"

namespace melete {
namespace dist_start_test {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(Ranks, WrongStartsGiveOneClearLine) {
  const int port = free_port();
  const auto start = [&](const std::string& name, const Variables& variables, double connect_seconds = 2) {
    return std::make_unique<Process>(
        MELETE_PROGRAM,
        words(folder_ / "run", 2,
              {"--batch_size", "4", "--train.dist.connect_seconds", fmt::format("{}", connect_seconds)}),
        folder_ / name, variables);
  };
  const auto expect_one_line = [](const Ended& ended, const ::testing::Matcher<std::string>& says) {
    EXPECT_EQ(ended.code, 1) << ended.output;
    EXPECT_THAT(ended.output, says);
    EXPECT_EQ(std::count(ended.output.begin(), ended.output.end(), '\n'), 1) << ended.output;
  };
  {  // a port that somebody listens on
    const int socket = ::socket(AF_INET6, SOCK_STREAM, 0);
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_any;
    address.sin6_port = htons(static_cast<uint16_t>(port));
    ASSERT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::listen(socket, 1), 0);
    expect_one_line(start("taken", rank_of(0, 2, port))->wait(),
                    AllOf(HasSubstr(fmt::format("port {}", port)), HasSubstr("taken")));
    ::close(socket);
  }
  // nobody there
  expect_one_line(start("nobody", rank_of(1, 2, free_port()))->wait(),
                  HasSubstr("cannot reach rank 0 at 127.0.0.1"));
  expect_one_line(start("nowhere", rank_of(1, 2, port, "no-such-host.invalid"))->wait(),
                  HasSubstr("cannot reach rank 0 at no-such-host.invalid"));
  // the other ranks never come
  expect_one_line(start("lonely", rank_of(0, 3, free_port()))->wait(), HasSubstr("for rank 1, 2 of 3"));
  for (const bool main_first : {true, false}) {  // two ideas of the size
    const int shared = free_port();
    const auto first = start("first", main_first ? rank_of(0, 2, shared) : rank_of(1, 3, shared), 4),
               second = start("second", main_first ? rank_of(1, 3, shared) : rank_of(0, 2, shared), 4);
    for (const auto& each : {first.get(), second.get()})
      expect_one_line(each->wait(), AllOf(HasSubstr("3 processes"), HasSubstr("2 processes")));
  }
  {  // one rank twice
    const int shared = free_port();
    const auto zero = start("zero", rank_of(0, 3, shared), 4), one = start("one", rank_of(1, 3, shared), 4),
               again = start("again", rank_of(1, 3, shared), 4);
    const std::string both = one->wait().output + again->wait().output;
    EXPECT_THAT(both, HasSubstr("two processes say that they are rank 1"));
    EXPECT_EQ(zero->wait().code, 1);
  }
  Variables contradiction = rank_of(0, 2, port);
  contradiction["OMPI_COMM_WORLD_SIZE"] = "4";
  expect_one_line(start("contradiction", contradiction)->wait(),
                  HasSubstr("WORLD_SIZE is 2 but OMPI_COMM_WORLD_SIZE is 4"));
  EXPECT_FALSE(fs::exists(folder_ / "run")) << "a start that fails leaves no run folder behind";
}

TEST_F(Ranks, StartedByHandWithTheStoreInRankZero) {
  const int port = free_port();
  const auto ended = run_ranks(2, MELETE_PROGRAM, words(folder_ / "run", 6, {"--batch_size", "4"}), folder_,
                               [&](int64_t rank) { return rank_of(rank, 2, port); });
  EXPECT_EQ(ended[0].code, 0) << ended[0].output;
  EXPECT_EQ(ended[1].code, 0) << ended[1].output;
  EXPECT_EQ(ended[1].output, "") << "only the main rank speaks";
  EXPECT_EQ(difference(two_processes(), checkpoint(folder_ / "run", 6)), 0);
}

// What srun gives each of its tasks, as far as anything here reads it.
Variables slurm_task(int64_t rank, int64_t size, int64_t job) {
  return {{"SLURM_PROCID", std::to_string(rank)},
          {"SLURM_LOCALID", std::to_string(rank)},
          {"SLURM_NODEID", "0"},
          {"SLURM_STEP_NUM_TASKS", std::to_string(size)},
          {"SLURM_STEP_NUM_NODES", "1"},
          {"SLURM_NNODES", "1"},
          {"SLURM_STEP_TASKS_PER_NODE", std::to_string(size)},
          {"SLURM_STEP_NODELIST", "somewhere"},
          {"SLURM_JOB_ID", std::to_string(job)},
          {"SLURM_STEP_ID", "0"}};
}

Variables open_mpi_process(int64_t rank, int64_t size, const std::string& job) {
  return {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_SIZE", std::to_string(size)},
          {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(size)},
          {"PMIX_NAMESPACE", job}};
}

TEST_F(Ranks, AsSlurmStartsThem) {
  const auto ended = run_ranks(2, MELETE_PROGRAM, words(folder_ / "run", 6, {"--batch_size", "4"}), folder_,
                               [](int64_t rank) { return slurm_task(rank, 2, ::getpid()); });
  for (const Ended& each : ended) EXPECT_EQ(each.code, 0) << each.output;
  EXPECT_EQ(difference(two_processes(), checkpoint(folder_ / "run", 6)), 0);
  // A variable that is left over from elsewhere.
  Variables contradiction = slurm_task(0, 2, ::getpid());
  contradiction.insert(
      {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}});
  const Ended refused = run(words(folder_ / "no", 2), contradiction);
  EXPECT_EQ(refused.code, 1) << refused.output;
  EXPECT_THAT(refused.output, HasSubstr("RANK is 1 but SLURM_PROCID is 0"));
}

TEST_F(Ranks, AsOpenMpiStartsThem) {
  const std::string job = fmt::format("test-{}", ::getpid());
  const auto ended = run_ranks(2, MELETE_PROGRAM, words(folder_ / "run", 6, {"--batch_size", "4"}), folder_,
                               [&](int64_t rank) { return open_mpi_process(rank, 2, job); });
  for (const Ended& each : ended) EXPECT_EQ(each.code, 0) << each.output;
  EXPECT_EQ(difference(two_processes(), checkpoint(folder_ / "run", 6)), 0);
}

TEST_F(Ranks, MpirunStartsThem) {
  if (std::system("command -v mpirun >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "mpirun (openmpi-bin) is not installed";
  Words all = {"--oversubscribe", "--bind-to", "none", "-np", "2", MELETE_PROGRAM};
  const Words ours = words(folder_ / "run", 6, {"--batch_size", "4"});
  all.insert(all.end(), ours.begin(), ours.end());
  const Ended ended =
      Process("mpirun", all, folder_ / "log",
              Variables{{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}})
          .wait();
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(difference(two_processes(), checkpoint(folder_ / "run", 6)), 0);
}

TEST_F(Ranks, TwoMachinesAsSlurmAndTorchrunNameThem) {
  // Each has its own working folder.
  std::string command = MELETE_PROGRAM;
  for (const std::string& word : words("run", 6, {"--batch_size", "4"})) command += " " + word;
  std::ofstream(folder_ / "two.sh") << kTwoMachines
                                    << fmt::format(R"(
both() {{ # a folder for each machine, and how each process learns of its place
  mkdir -p {0}/$1/first {0}/$1/second
  (cd {0}/$1/first; export $2; exec {1}) > {0}/$1.first.log 2>&1 & zero=$!
  (cd {0}/$1/second; export $3; exec nsenter -t $other -n {1}) > {0}/$1.second.log 2>&1 & one=$!
  code=0; wait $zero || code=$?; echo "$1 zero $code"
  code=0; wait $one || code=$?; echo "$1 one $code"
}}
export SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=2 SLURM_NNODES=2 SLURM_STEP_TASKS_PER_NODE='1(x2)'   SLURM_STEP_NODELIST='10.77.0.[1-2]' SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_LOCALID=0
both slurm "SLURM_PROCID=0 SLURM_NODEID=0" "SLURM_PROCID=1 SLURM_NODEID=1"
unset ${{!SLURM_*}}
export WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.77.0.1 MASTER_PORT=29512
both torchrun RANK=0 RANK=1
# Now the second machine swallows whatever comes.
nsenter -t $other -n ip route add blackhole 10.77.0.1/32
begin=$SECONDS code=0
RANK=1 MASTER_ADDR=10.77.0.2 {1} --train.dist.connect_seconds 2 > {0}/swallowed.log 2>&1 || code=$?
echo "swallowed $code within $(( (SECONDS - begin) / 20 * 20 + 20 )) s"
kill $other
)",
                                                   folder_.string(), command);
  const Ended ended =
      Process("unshare", {"-rn", "bash", (folder_ / "two.sh").string()}, folder_ / "two.log").wait();
  if (ended.output.find("ready") == std::string::npos)
    GTEST_SKIP() << "no network namespaces here: " << ended.output.substr(0, 200);
  for (const std::string by : {"slurm", "torchrun"}) {
    SCOPED_TRACE(by);
    const std::string zero = read_text(folder_ / (by + ".first.log")),
                      one = read_text(folder_ / (by + ".second.log"));
    EXPECT_THAT(ended.output, AllOf(HasSubstr(by + " zero 0"), HasSubstr(by + " one 0"))) << zero << one;
    EXPECT_EQ(difference(two_processes(), checkpoint(folder_ / by / "first/run", 6)), 0);
    EXPECT_FALSE(fs::exists(folder_ / by / "second/run")) << "the main rank alone writes";
  }
  EXPECT_THAT(ended.output, HasSubstr("swallowed 1 within 20 s"));
  EXPECT_THAT(read_text(folder_ / "swallowed.log"),
              HasSubstr("rank 1 cannot reach rank 0 at 10.77.0.2:29512 within 2 s"));
}

// A relative path is another folder on another machine, here in another working directory.
TEST_F(Ranks, OtherDataThanTheMainRanksIsRefused) {
  const auto tokens_of = [](const fs::path& folder, int64_t items) {
    std::vector<std::string> names;
    std::vector<Item> all;
    for (int64_t i = 0; i < items; ++i) {
      names.push_back(fmt::format("{}.wav", i));
      all.push_back(token_item(names.back(), at::arange(9, at::kLong), {}));
    }
    TokenColumns columns;
    columns.list = {{"semantic", "test", 10, 0, 10, 0}};
    TokenFolderWriter(folder.string(), columns, names, 64).write(0, all);
  };
  for (const char* machine : {"same", "main", "other"}) {
    fs::create_directories(folder_ / machine);
    fs::copy(shared_ / "music", folder_ / machine / "music", fs::copy_options::recursive);
    tokens_of(folder_ / machine / "tokens", machine == std::string("other") ? 5 : 6);
  }
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder_ / "other" / "music")) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  fs::remove(files.back());

  const Words sound = {
      "train",   "soundstream", "--config", (shared_ / "recipe.toml").string(), "--data", "music",
      "--steps", "1",           "--out",    (folder_ / "run").string()};
  const Words tokens = {"train",
                        "semantic",
                        "--data",
                        "tokens",
                        "--steps",
                        "1",
                        "--out",
                        (folder_ / "run").string(),
                        "--threads",
                        "1",
                        "--model.dim",
                        "16",
                        "--model.depth",
                        "1",
                        "--model.heads",
                        "2",
                        "--model.head_dim",
                        "8",
                        "--data.valid_fraction",
                        "0",
                        "--train.dist.timeout_seconds",
                        "10"};
  const auto start = [&](const Words& all, const std::vector<std::string>& machines) {
    const int port = free_port();
    std::vector<std::unique_ptr<Process>> ranks;
    for (int64_t rank = 0; rank < 2; ++rank)
      ranks.push_back(std::make_unique<Process>(
          MELETE_PROGRAM, all, folder_ / fmt::format("log-{}", rank), Process::Setup([&, rank] {
            for (const auto& [name, value] : rank_of(rank, 2, port)) ::setenv(name.c_str(), value.c_str(), 1);
            if (::chdir((folder_ / machines[static_cast<size_t>(rank)]).c_str()) != 0) ::_exit(126);
          })));
    std::vector<Ended> ended;
    for (const auto& rank : ranks) ended.push_back(rank->wait());
    return ended;
  };
  for (const Words& all : {sound, tokens}) {
    SCOPED_TRACE(all[1]);
    const auto ended = start(all, {"main", "other"});
    for (const Ended& rank : ended) EXPECT_NE(rank.code, 0) << rank.output;
    EXPECT_THAT(ended[0].output + ended[1].output, HasSubstr("training data"));
    EXPECT_FALSE(fs::exists(folder_ / "run"));
    for (const Ended& rank : start(all, {"main", "same"})) EXPECT_EQ(rank.code, 0) << rank.output;
    fs::remove_all(folder_ / "run");
  }
}

}  // namespace dist_start_test
}  // namespace melete
