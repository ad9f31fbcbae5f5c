#pragma once

#include <string>
#include <vector>

namespace melete {

// The systems that `melete import <system> FILE -o x.safetensors` takes as published weights of frozen
// models.
const std::vector<std::string>& frozen_systems();  // hubert, encodec, t5, vq-wav2vec

// The words after the system's name.
int import_frozen_command(const std::string& system, const std::vector<std::string>& args);

}  // namespace melete
