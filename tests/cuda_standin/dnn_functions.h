#pragma once

#include <type_traits>

#include "kernels/gpu/cuda/dnn_api.h"

/// The functions that the stand-in for cuDNN exports, with the types of gpu::dnn::Api.
extern "C" {
extern std::remove_pointer_t<decltype(millrace::gpu::dnn::Api::GetVersion)> cudnnGetVersion;
extern std::remove_pointer_t<decltype(millrace::gpu::dnn::Api::GetErrorString)> cudnnGetErrorString;
extern std::remove_pointer_t<decltype(millrace::gpu::dnn::Api::Create)> cudnnCreate;
extern std::remove_pointer_t<decltype(millrace::gpu::dnn::Api::Destroy)> cudnnDestroy;
extern std::remove_pointer_t<decltype(millrace::gpu::dnn::Api::SetStream)> cudnnSetStream;
extern std::remove_pointer_t<decltype(millrace::gpu::dnn::Api::CreateTensorDescriptor)>
    cudnnCreateTensorDescriptor;
extern std::remove_pointer_t<decltype(millrace::gpu::dnn::Api::DestroyTensorDescriptor)>
    cudnnDestroyTensorDescriptor;
extern std::remove_pointer_t<decltype(millrace::gpu::dnn::Api::SetTensor4dDescriptor)>
    cudnnSetTensor4dDescriptor;
extern std::remove_pointer_t<decltype(millrace::gpu::dnn::Api::CreateFilterDescriptor)>
    cudnnCreateFilterDescriptor;
extern std::remove_pointer_t<decltype(millrace::gpu::dnn::Api::DestroyFilterDescriptor)>
    cudnnDestroyFilterDescriptor;
extern std::remove_pointer_t<decltype(millrace::gpu::dnn::Api::SetFilter4dDescriptor)>
    cudnnSetFilter4dDescriptor;
extern std::remove_pointer_t<decltype(millrace::gpu::dnn::Api::CreateConvolutionDescriptor)>
    cudnnCreateConvolutionDescriptor;
extern std::remove_pointer_t<decltype(millrace::gpu::dnn::Api::DestroyConvolutionDescriptor)>
    cudnnDestroyConvolutionDescriptor;
extern std::remove_pointer_t<decltype(millrace::gpu::dnn::Api::SetConvolution2dDescriptor)>
    cudnnSetConvolution2dDescriptor;
extern std::remove_pointer_t<decltype(millrace::gpu::dnn::Api::SetConvolutionGroupCount)>
    cudnnSetConvolutionGroupCount;
extern std::remove_pointer_t<decltype(millrace::gpu::dnn::Api::SetConvolutionMathType)>
    cudnnSetConvolutionMathType;
extern std::remove_pointer_t<decltype(millrace::gpu::dnn::Api::GetConvolutionForwardAlgorithm_v7)>
    cudnnGetConvolutionForwardAlgorithm_v7;
extern std::remove_pointer_t<
    decltype(millrace::gpu::dnn::Api::GetConvolutionBackwardDataAlgorithm_v7)>
    cudnnGetConvolutionBackwardDataAlgorithm_v7;
extern std::remove_pointer_t<
    decltype(millrace::gpu::dnn::Api::GetConvolutionBackwardFilterAlgorithm_v7)>
    cudnnGetConvolutionBackwardFilterAlgorithm_v7;
extern std::remove_pointer_t<decltype(millrace::gpu::dnn::Api::ConvolutionForward)>
    cudnnConvolutionForward;
extern std::remove_pointer_t<decltype(millrace::gpu::dnn::Api::ConvolutionBackwardData)>
    cudnnConvolutionBackwardData;
extern std::remove_pointer_t<decltype(millrace::gpu::dnn::Api::ConvolutionBackwardFilter)>
    cudnnConvolutionBackwardFilter;
}
