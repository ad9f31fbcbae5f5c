#include "cli/doctor_command.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>

namespace melete::doctor_test {

std::string use_of(const std::string& name, const EngineInfo& info, VectorLevel level) {
  for (const auto& [instructions, use] : instruction_use(info, level))
    if (instructions == name) return use;
  return "nobody speaks of it";
}

EngineInfo new_processor() {
  EngineInfo info;
  info.avx2 = info.avx512 = info.avx512_bf16 = info.amx = info.amx_usable = true;
  info.capability = "AVX512";
  info.onednn_says = info.onednn_avx512 = info.onednn_bf16 = info.onednn_amx = true;
  return info;
}

TEST(Doctor, SaysWhichInstructionsAreInUseAndByWhom) {
  const EngineInfo info = new_processor();
  EXPECT_EQ(use_of("AVX2", info, VectorLevel::v4), "in use: hand-written kernels, LibTorch, oneDNN");
  EXPECT_EQ(use_of("AVX-512", info, VectorLevel::v4), "in use: hand-written kernels, LibTorch, oneDNN");
  EXPECT_EQ(use_of("AVX-512 bf16", info, VectorLevel::v4),
            "in use: hand-written kernels, oneDNN, for --precision bf16");
  EXPECT_EQ(use_of("AVX-512 bf16", info, VectorLevel::v3), "in use: oneDNN, for --precision bf16");
  EXPECT_EQ(use_of("AMX", info, VectorLevel::v4), "in use: oneDNN, for --precision bf16");
  EXPECT_EQ(use_of("AMX", info, VectorLevel::amx),
            "in use: hand-written kernels, oneDNN, for --precision bf16");
}

TEST(Doctor, SaysWhatIsThereAndNotInUse) {
  EngineInfo info = new_processor();
  info.capability = "AVX2";                                         // ATEN_CPU_CAPABILITY
  info.onednn_avx512 = info.onednn_bf16 = info.onednn_amx = false;  // DNNL_MAX_CPU_ISA
  EXPECT_EQ(use_of("AVX-512", info, VectorLevel::v3), "there, not in use");
  EXPECT_EQ(use_of("AVX-512", info, VectorLevel::v4), "in use: hand-written kernels");
  EXPECT_EQ(use_of("AVX2", info, VectorLevel::plain), "in use: LibTorch, oneDNN");
  EXPECT_EQ(use_of("AMX", info, VectorLevel::v4), "there, not in use");
}

TEST(Doctor, SaysWhyAMachineThatHidesItsTilesIsNotAsked) {
  EngineInfo info = new_processor();
  info.amx_usable = info.onednn_amx = false;
  const std::string why = " (not by oneDNN: this machine does not say how large its tiles are)";
  EXPECT_EQ(use_of("AMX", info, VectorLevel::v4), "there, not in use" + why);
  EXPECT_EQ(use_of("AMX", info, VectorLevel::amx), "in use: hand-written kernels" + why);
  EXPECT_TRUE(has_bf16_instructions(info));
  info.avx512_bf16 = false;
  EXPECT_FALSE(has_bf16_instructions(info));
}

TEST(Doctor, SaysWhatAProcessorHasNot) {
  const EngineInfo old;
  for (const auto& [instructions, use] : instruction_use(old, VectorLevel::plain))
    EXPECT_EQ(use, "this processor has none") << instructions;
}

TEST(Engine, DenormalsAreZeroOnEveryThread) {
  const at::Tensor tiny = at::full({1 << 20}, 1e-30f), small = at::full({1 << 20}, 1e-10f);
  EXPECT_EQ((tiny * small).count_nonzero().item<int64_t>(), 0);
  std::atomic<int> kept = 0;
  at::parallel_for(0, 1 << 10, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      volatile float value = 1e-30f;
      value = value * 1e-10f;
      if (value != 0) ++kept;
    }
  });
  EXPECT_EQ(kept, 0);
}

}  // namespace melete::doctor_test
