// What launchers say about a process, and what happens when they contradict each other.
#include "dist/base/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "core/base/error.h"

namespace melete {
namespace environment_test {

using Map = std::map<std::string, std::string>;
using ::testing::HasSubstr;

Place place_of(const Map& variables) {
  return read_place([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string error_of(const Map& variables) {
  try {
    place_of(variables);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

const Map kTorchrun = {{"RANK", "5"},
                       {"WORLD_SIZE", "8"},
                       {"LOCAL_RANK", "1"},
                       {"LOCAL_WORLD_SIZE", "4"},
                       {"MASTER_ADDR", "node1"},
                       {"MASTER_PORT", "1234"}};

Map with(Map map, const Map& more) {
  for (const auto& [name, value] : more) map[name] = value;
  return map;
}

TEST(Place, AloneWithoutAnyLauncher) {
  const Place place = place_of({});
  EXPECT_TRUE(place.alone());
  EXPECT_TRUE(place.main());
  // A SLURM batch script that does not use srun is alone, too, however many tasks the job has.
  EXPECT_TRUE(place_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}).alone());
}

TEST(Place, Torchrun) {
  const Place place = place_of(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                                {"TORCHELASTIC_RESTART_COUNT", "2"},
                                                {"TORCHELASTIC_RUN_ID", "job"},
                                                {"SLURM_PROCID", "1"},
                                                {"SLURM_STEP_NUM_TASKS", "2"}}));
  EXPECT_EQ(place.rank, 5);
  EXPECT_EQ(place.size, 8);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.local_size, 4);
  EXPECT_EQ(place.address, "node1");
  EXPECT_EQ(place.port, 1234);
  EXPECT_TRUE(place.store_outside);
  EXPECT_EQ(place.restarts, 2);
  EXPECT_EQ(place.run, "job");
}

TEST(Place, Slurm) {
  const Map slurm = {{"SLURM_PROCID", "3"},
                     {"SLURM_STEP_NUM_TASKS", "5"},
                     {"SLURM_LOCALID", "1"},
                     {"SLURM_STEP_NUM_NODES", "3"},
                     {"SLURM_NODEID", "1"},
                     {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
                     {"SLURM_STEP_NODELIST", "gpu[07-09]"},
                     {"SLURM_JOB_ID", "4711"}};
  const Place place = place_of(slurm);
  EXPECT_EQ(place.rank, 3);
  EXPECT_EQ(place.size, 5);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.local_size, 2);
  EXPECT_EQ(place.address, "gpu07");
  EXPECT_EQ(place.port, place_of(with(slurm, {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}})).port);
  EXPECT_NE(place.port, place_of(with(slurm, {{"SLURM_JOB_ID", "4712"}})).port);
  EXPECT_EQ(place_of(with(slurm, {{"MASTER_ADDR", "here"}, {"MASTER_PORT", "99"}})).address, "here");
  EXPECT_FALSE(place.store_outside);
}

TEST(Place, FirstHostOfSlurmsList) {
  EXPECT_EQ(first_host("node1"), "node1");
  EXPECT_EQ(first_host("node1,node2"), "node1");
  EXPECT_EQ(first_host("node[03-05,9],other"), "node03");
  EXPECT_EQ(first_host("rack[2,4]-ib,x"), "rack2-ib");
  EXPECT_THROW(first_host("node[03"), Error);
}

TEST(Place, OpenMpi) {
  const Map mpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                   {"OMPI_COMM_WORLD_SIZE", "2"},
                   {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                   {"PMIX_NAMESPACE", "42"}};
  const Place place = place_of(mpi);
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.size, 2);
  EXPECT_EQ(place.address, "127.0.0.1");
  EXPECT_THAT(error_of(with(mpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}})),
              HasSubstr("MASTER_ADDR"));
}

TEST(Place, ContradictionsAreNamed) {
  EXPECT_THAT(error_of({{"RANK", "1"}}), HasSubstr("WORLD_SIZE"));
  EXPECT_THAT(error_of({{"WORLD_SIZE", "2"}}), HasSubstr("[RANK]"));
  EXPECT_THAT(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), HasSubstr("MASTER_ADDR"));
  EXPECT_THAT(error_of(with(kTorchrun, {{"RANK", "8"}})), HasSubstr("rank 8 of 8"));
  EXPECT_THAT(error_of(with(kTorchrun, {{"RANK", "-1"}})), HasSubstr("[RANK]"));
  EXPECT_THAT(error_of(with(kTorchrun, {{"WORLD_SIZE", "many"}})), HasSubstr("'many'"));
  EXPECT_THAT(error_of(with(kTorchrun, {{"MASTER_PORT", "70000"}})), HasSubstr("[MASTER_PORT]"));
  EXPECT_THAT(error_of(with(kTorchrun, {{"LOCAL_RANK", "4"}})), HasSubstr("process 4 of 4"));
  EXPECT_THAT(error_of(with(kTorchrun, {{"OMPI_COMM_WORLD_RANK", "4"}})),
              HasSubstr("OMPI_COMM_WORLD_RANK is 4"));
  EXPECT_THAT(error_of(with(kTorchrun, {{"SLURM_PROCID", "5"}, {"SLURM_STEP_NUM_TASKS", "16"}})),
              HasSubstr("SLURM_STEP_NUM_TASKS is 16"));
  EXPECT_EQ(error_of(kTorchrun), "no error");
}

}  // namespace environment_test
}  // namespace melete
