// kill -9 at any moment: there is always a checkpoint that loads, and none under a final name that does not.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "core/base/random.h"
#include "run/run_folder.h"

namespace melete {
namespace kill_test {

namespace fs = std::filesystem;

// About 300 kB, all of it a function of the step, so that bytes of two checkpoints mixed would show.
Checkpoint of_step(int64_t step) {
  Checkpoint checkpoint;
  checkpoint.meta = {{"step", step}};
  for (int i = 0; i < 5; ++i)
    checkpoint.tensors["model." + std::to_string(i)] = at::full({120, 128}, static_cast<double>(step + i));
  return checkpoint;
}

bool is_of_its_step(const Checkpoint& checkpoint) {
  const Checkpoint expected = of_step(checkpoint.step());
  for (const auto& [name, tensor] : expected.tensors)
    if (!at::equal(tensor, checkpoint.tensors.at(name))) return false;
  return checkpoint.tensors.size() == expected.tensors.size();
}

[[noreturn]] void save_forever(const std::string& folder) {
  at::set_num_threads(1);  // a forked child has none of its parent's worker threads
  RunFolder run(folder, StartMode::resume);
  const auto found = run.latest_usable(nullptr);
  for (int64_t step = found ? found->checkpoint.step() + 1 : 1;; ++step)
    run.save(of_step(step), {.last = 2, .every = 100});
}

TEST(KillTest, AlwaysALoadableCheckpointNeverAHalfOne) {
  std::string pattern = (fs::temp_directory_path() / "melete-kill-XXXXXX").string();
  const std::string base = ::mkdtemp(pattern.data());
  const std::string folder = base + "/run";
  { RunFolder(folder, StartMode::new_run).save(of_step(0), {}); }
  Rng rng(20240607);
  int64_t reached = 0;
  int stale_seen = 0;
  constexpr int kKills = 60;
  for (int round = 0; round < kKills; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        save_forever(folder);
      } catch (...) {
        ::_exit(3);
      }
    }
    // Every child gets as far as one checkpoint, however slow the machine, and is killed some time after it.
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (list_checkpoints(folder).front().step <= reached && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    std::this_thread::sleep_for(std::chrono::microseconds(rng.integer(0, 20000)));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        << "the child stopped by itself: " << status;

    for (const auto& entry : fs::directory_iterator(folder + "/checkpoints"))
      stale_seen += entry.path().filename().string().starts_with('.');
    for (const CheckpointEntry& entry : list_checkpoints(folder)) {
      ASSERT_EQ(entry.problem, "");
      ASSERT_TRUE(is_of_its_step(load_checkpoint(entry.path))) << entry.path;
    }
    const auto found = latest_usable(folder, [](const std::string& text) { ADD_FAILURE() << text; });
    ASSERT_TRUE(found.has_value());
    ASSERT_GE(found->checkpoint.step(), reached) << "a committed checkpoint was lost";
    reached = found->checkpoint.step();
  }
  EXPECT_GE(reached, kKills) << "the children were killed before they could save";
  EXPECT_GT(stale_seen, 0) << "no kill fell into a write, so this test has shown nothing";
  RunFolder(folder, StartMode::resume);
  for (const auto& entry : fs::directory_iterator(folder + "/checkpoints"))
    EXPECT_FALSE(entry.path().filename().string().starts_with('.')) << entry.path();
  fs::remove_all(base);
}

}  // namespace kill_test
}  // namespace melete
